package cli

import (
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/account"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// place is a screen and an account. Most commands need both.
type place struct {
	screen  *screen.Screen
	account *account.Account
}

package cli

import (
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/account"
	"github.com/go-vercel/sandbox/cmd/sandbox/internal/screen"
)

// place is where a command works: a screen and an account.
type place struct {
	screen  *screen.Screen
	account *account.Account
}

package cli

// place is where a command works: a screen and an account.
type place struct {
	screen  *stdio
	account *connection
}

package backend

// Account is the user of a sandbox and the user's directories.
type Account struct {
	// Name is the user's name; the user's numbers are UserID and GroupID.
	Name string
	// Home is the user's home directory.
	Home string
	// WorkDir is the default directory of commands. Relative paths start there.
	WorkDir string
}

// The accounts that a sandbox can have.
var (
	// RuntimeAccount is the account of the runtimes. It is the default.
	RuntimeAccount = Account{Name: User, Home: Home, WorkDir: WorkDir}
	// ImageAccount is the account of images. Its home is the working directory.
	ImageAccount = Account{Name: "ubuntu", Home: "/vercel", WorkDir: "/vercel"}
)

// Accounts are the accounts that a host prepares.
var Accounts = []Account{RuntimeAccount, ImageAccount}

// Dirs returns the directories of the account, outer ones first.
func (a Account) Dirs() []string {
	if a.Home == a.WorkDir {
		return []string{a.Home}
	}
	return []string{a.Home, VercelDir, a.WorkDir}
}

// VercelDir holds the working directories of all accounts.
const VercelDir = "/vercel"

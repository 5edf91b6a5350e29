package box

// Account is the user of a box, with the directories that it has.
type Account struct {
	// Name is the user's name; the user's numbers are UserID and GroupID.
	Name string
	// Home is the user's home directory.
	Home string
	// WorkDir is the default directory of commands. Relative paths start there.
	WorkDir string
}

// The accounts that a box can have.
var (
	// RuntimeAccount is that of the runtimes. It is the default.
	RuntimeAccount = Account{Name: User, Home: Home, WorkDir: WorkDir}
	// ImageAccount is that of images, whose home is the working directory.
	ImageAccount = Account{Name: "ubuntu", Home: "/vercel", WorkDir: "/vercel"}
)

// accounts are all that a host prepares for.
var accounts = []Account{RuntimeAccount, ImageAccount}

// dirs are the directories of the account, outer ones first.
func (a Account) dirs() []string {
	if a.Home == a.WorkDir {
		return []string{a.Home}
	}
	return []string{a.Home, vercelDir, a.WorkDir}
}

// vercelDir holds the working directories of all accounts.
const vercelDir = "/vercel"

// Account is the box's.
func (b *Box) Account() Account { return b.cfg.account() }

func (c *Config) account() Account {
	if c.Account == (Account{}) {
		return RuntimeAccount
	}
	return c.Account
}

package box

import "fmt"

// MkdirNew makes a directory in one that exists. When there is something with
// that name already, the error matches fs.ErrExist.
func (b *Box) MkdirNew(path, cwd string) error {
	name, err := b.path(path, cwd)
	if err != nil {
		return err
	}
	done, err := b.use()
	if err != nil {
		return fmt.Errorf("box: mkdir: %w", err)
	}
	defer done()
	return b.machine.mkdir(name, false)
}

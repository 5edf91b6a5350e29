package backend

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// CheckDir returns an error if a command can't start in dir. The error shows name instead
// of dir.
func CheckDir(dir, name string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil, errors.Is(err, syscall.ENOTDIR):
		return &LaunchError{codeNotRunnable, fmt.Sprintf("cannot change to directory %s: not a directory", name)}
	}
	return &LaunchError{codeNotRunnable, fmt.Sprintf("cannot change to directory %s: no such directory", name)}
}

// StartError returns the error that a shell would report.
func StartError(name string, err error) *LaunchError {
	switch {
	case errors.Is(err, fs.ErrNotExist) && strings.Contains(name, "/"):
		return &LaunchError{CodeNotFound, fmt.Sprintf("%s: No such file or directory", name)}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound), errors.Is(err, syscall.ENOTDIR):
		return &LaunchError{CodeNotFound, fmt.Sprintf("%s: command not found", name)}
	case errors.Is(err, fs.ErrPermission):
		return &LaunchError{codeNotRunnable, fmt.Sprintf("%s: Permission denied", name)}
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	return &LaunchError{codeNotRunnable, fmt.Sprintf("%s: cannot execute: %v", name, err)}
}

// Start starts a resolved command. Like a shell, it runs a text file without "#!" as a
// shell script.
func Start(cmd *exec.Cmd, name string) error {
	err := cmd.Start()
	restart := func(path string, args []string) {
		*cmd = exec.Cmd{
			Path: path, Args: args, Env: cmd.Env, Dir: cmd.Dir,
			Stdin: cmd.Stdin, Stdout: cmd.Stdout, Stderr: cmd.Stderr, SysProcAttr: cmd.SysProcAttr,
		}
		err = cmd.Start()
	}
	// A process that another goroutine is just starting briefly inherits files that are
	// open for writing, such as an uploaded program.
	for pause := time.Millisecond; errors.Is(err, syscall.ETXTBSY) && pause < time.Second; pause *= 2 {
		time.Sleep(pause)
		restart(cmd.Path, cmd.Args)
	}
	if errors.Is(err, syscall.ENOEXEC) && runtime.GOOS != "windows" {
		restart("/bin/sh", append([]string{"sh", cmd.Path}, cmd.Args[1:]...))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE),
		errors.Is(err, syscall.ENFILE), errors.Is(err, os.ErrProcessDone):
		return err // the host's fault, not the command's
	}
	return StartError(name, err)
}

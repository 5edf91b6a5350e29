// Seccomp runs a command where system calls fail as they do elsewhere, to stand in
// for machines whose policy forbids namespaces.
//
//	seccomp docker COMMAND…	as Docker's profile has it without CAP_SYS_ADMIN
//	seccomp ubuntu COMMAND…	as AppArmor has it for ordinary users of Ubuntu 24.04: user
//	                       	namespaces can be made, and nothing be done in them
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// namespaceFlags are those of clone that make namespaces.
const namespaceFlags = unix.CLONE_NEWCGROUP | unix.CLONE_NEWIPC | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUSER | unix.CLONE_NEWUTS

func filter(machine string) []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	result := func(value uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value} }
	fails := func(with syscall.Errno) unix.SockFilter { return result(unix.SECCOMP_RET_ERRNO | uint32(with)) }
	program := []unix.SockFilter{load(0)} // the call's number
	deny := func(call int, with syscall.Errno) {
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(call), Jf: 1}, fails(with))
	}
	for _, call := range []int{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_SETNS, unix.SYS_SETHOSTNAME, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_OPEN_TREE, unix.SYS_MOUNT_SETATTR} {
		deny(call, unix.EPERM)
	}
	if machine == "ubuntu" {
		deny(unix.SYS_CHROOT, unix.EPERM)
		return append(program, result(unix.SECCOMP_RET_ALLOW))
	}
	deny(unix.SYS_UNSHARE, unix.EPERM)
	deny(unix.SYS_CLONE3, unix.ENOSYS) // whose flags a filter can't see
	return append(program,
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		load(16), // the first argument
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: namespaceFlags, Jf: 1},
		fails(unix.EPERM),
		result(unix.SECCOMP_RET_ALLOW))
}

func main() {
	if len(os.Args) < 3 || !slices.Contains([]string{"docker", "ubuntu"}, os.Args[1]) {
		fmt.Fprintln(os.Stderr, "usage: seccomp docker|ubuntu COMMAND…")
		os.Exit(2)
	}
	path, err := exec.LookPath(os.Args[2])
	runtime.LockOSThread() // the filter is this thread's, and the program's that it becomes
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		program := filter(os.Args[1])
		err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})), 0, 0)
	}
	if err == nil {
		err = syscall.Exec(path, os.Args[2:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, "seccomp:", err)
	os.Exit(126)
}

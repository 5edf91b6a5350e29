package backend

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// No namespace separates the kernel's keyrings, which a box would share with its
// user, with the session that the emulator was started from and with all other boxes;
// the sockets of the machine's hypervisor, by which boxes reach each other; and control
// groups: a program that is root could mount the group that it shares with this process
// in a namespace of its own, and limit, freeze or end it. The kernel refuses these calls
// to programs of a box. This is no boundary: what else the kernel offers, it offers.
// Programs may make user namespaces and mount in them, if users of the machine may:
// browsers contain their pages so, and the service's machines allow it.

// callTable is one of the kernel's tables of system calls, by the number of its
// architecture.
type callTable struct {
	arch uint32
	// keyrings are add_key, request_key and keyctl.
	keyrings [3]uint32
	// socket is the call that makes a socket; its first argument is the kind of
	// address. (That of an older call, socketcall, is in memory, where a filter does
	// not look; programs of 32 bits need it.)
	socket uint32
	// clone and unshare make namespaces; flags is which argument of clone says of
	// what.
	clone, unshare uint32
	flags          uint32
}

var (
	tableX86  = callTable{unix.AUDIT_ARCH_X86_64, [3]uint32{248, 249, 250}, 41, 56, 272, 0}
	tableI386 = callTable{unix.AUDIT_ARCH_I386, [3]uint32{286, 287, 288}, 359, 120, 310, 0}
	tableARM  = callTable{unix.AUDIT_ARCH_ARM, [3]uint32{309, 310, 311}, 281, 120, 337, 0}
	// genericKeyrings are those of newer architectures.
	genericKeyrings = [3]uint32{217, 218, 219}
)

// callTables has, for a machine, that of its programs and of others that it runs
// as well.
var callTables = map[string][]callTable{
	"amd64":   {tableX86, tableI386},
	"386":     {tableI386},
	"arm64":   {{unix.AUDIT_ARCH_AARCH64, genericKeyrings, 198, 220, 97, 0}, tableARM},
	"arm":     {tableARM},
	"riscv64": {{unix.AUDIT_ARCH_RISCV64, genericKeyrings, 198, 220, 97, 0}},
	"loong64": {{unix.AUDIT_ARCH_LOONGARCH64, genericKeyrings, 198, 220, 97, 0}},
	"ppc64le": {{unix.AUDIT_ARCH_PPC64LE, [3]uint32{269, 270, 271}, 326, 120, 282, 0}},
	"s390x":   {{unix.AUDIT_ARCH_S390X, [3]uint32{278, 279, 280}, 359, 120, 303, 1}},
}

// clone3 is the call's number in all tables.
const clone3 = 435

// NewSessionKeyring gives the calling thread, and what it starts, a session's
// keyring of its own in the place of that of the login. A kernel without keyrings,
// or a user with too many, has none to give.
func NewSessionKeyring() { _, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) }

// RefuseCalls makes the kernel refuse them to programs that the calling thread
// starts. A filter can't see what clone3 makes, so that the kernel has none, and
// libraries use clone instead.
func RefuseCalls() error {
	tables := callTables[runtime.GOARCH]
	if tables == nil {
		return fmt.Errorf("refuse system calls on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	filter := callFilter(tables)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A thread that may change its namespaces may do this without giving up the
	// rights of set-id programs, such as sudo.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("refuse system calls: %w", err)
	}
	return nil
}

// callFilter also refuses every call of another architecture.
func callFilter(tables []callTable) []unix.SockFilter {
	const (
		load, ret  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_RET | unix.BPF_K
		jump       = unix.BPF_JMP | unix.BPF_JA
		equal, min = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		has        = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		refuse     = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		shortCalls = 0x40000000 // of programs with short pointers, x32
		// In struct seccomp_data.
		number, arch, arguments = 0, 4, 16
	)
	// The lower half of an argument.
	low := func(argument uint32) unix.SockFilter {
		offset := arguments + 8*argument
		if runtime.GOARCH == "s390x" {
			offset += 4
		}
		return unix.SockFilter{Code: load, K: offset}
	}
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	refuseIf := func(is uint32) []unix.SockFilter {
		return []unix.SockFilter{{Code: equal, Jf: 1, K: is}, {Code: ret, K: refuse}}
	}
	filter := []unix.SockFilter{{Code: load, K: arch}}
	for _, table := range tables {
		own := []unix.SockFilter{{Code: load, K: number}, {Code: min, Jf: 1, K: shortCalls}, {Code: ret, K: refuse}}
		for _, call := range table.keyrings {
			own = append(own, refuseIf(call)...)
		}
		own = append(own, unix.SockFilter{Code: equal, Jf: 1, K: clone3}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
		for _, maker := range []struct {
			call, flags uint32
		}{{table.clone, table.flags}, {table.unshare, 0}} {
			own = append(own, unix.SockFilter{Code: equal, Jf: 4, K: maker.call}, low(maker.flags),
				unix.SockFilter{Code: has, Jf: 1, K: unix.CLONE_NEWCGROUP}, unix.SockFilter{Code: ret, K: refuse}, allow)
		}
		own = append(own, unix.SockFilter{Code: equal, Jf: 3, K: table.socket}, low(0))
		own = append(own, refuseIf(unix.AF_VSOCK)...)
		own = append(own, allow)
		filter = append(filter, unix.SockFilter{Code: equal, Jt: 1, K: table.arch}, unix.SockFilter{Code: jump, K: uint32(len(own))})
		filter = append(filter, own...)
	}
	return append(filter, unix.SockFilter{Code: ret, K: refuse})
}

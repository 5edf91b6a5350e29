package backend

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel refuses some system calls to programs in a sandbox, because no namespace
// separates what they reach. A sandbox would share keyrings with its user, with the session
// from which the emulator was started and with all other sandboxes. Sandboxes could reach each
// other by the sockets of the machine's hypervisor. And a program that is root could mount
// the control group that it shares with this process, and limit, freeze or end it. This is
// not a security boundary: programs can use everything else that the kernel offers.
// Programs may create user namespaces and mount in them if users of the machine may,
// because browsers isolate their pages that way and the service's machines allow it.

// callTable has system call numbers of one architecture.
type callTable struct {
	arch uint32
	// keyrings are add_key, request_key and keyctl.
	keyrings [3]uint32
	// socket is the call that creates a socket. Its first argument is the address family.
	// (The arguments of the older socketcall are in memory, which a filter can't inspect,
	// and 32-bit programs need it.)
	socket uint32
	// clone and unshare make namespaces; their first argument says which.
	clone, unshare uint32
}

// callTables has the tables of an architecture: for its own programs and for 32-bit ones.
var callTables = map[string][]callTable{
	"amd64": {
		{unix.AUDIT_ARCH_X86_64, [3]uint32{248, 249, 250}, 41, 56, 272},
		{unix.AUDIT_ARCH_I386, [3]uint32{286, 287, 288}, 359, 120, 310},
	},
	"arm64": {
		{unix.AUDIT_ARCH_AARCH64, [3]uint32{217, 218, 219}, 198, 220, 97},
		{unix.AUDIT_ARCH_ARM, [3]uint32{309, 310, 311}, 281, 120, 337},
	},
}

// clone3 is the call's number in all tables.
const clone3 = 435

// NewSessionKeyring gives the calling thread and its children a new session keyring in
// place of the login's. A kernel without keyrings, or a user with too many, gets none.
func NewSessionKeyring() { _, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) }

// RefuseCalls makes the kernel refuse the calls described above to programs that the
// calling thread starts. A filter can't inspect what clone3 creates, so clone3 does not
// exist for them, and libraries use clone instead.
func RefuseCalls() error {
	tables := callTables[runtime.GOARCH]
	if tables == nil {
		return fmt.Errorf("refuse system calls on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	filter := callFilter(tables)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A thread that may change its namespaces can install a filter without giving up
	// set-user-ID programs such as sudo.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("refuse system calls: %w", err)
	}
	return nil
}

// callFilter returns the filter for RefuseCalls. It also refuses every call of other
// architectures.
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
	first := unix.SockFilter{Code: load, K: arguments} // the lower half of the first argument
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
		for _, call := range []uint32{table.clone, table.unshare} {
			own = append(own, unix.SockFilter{Code: equal, Jf: 4, K: call}, first,
				unix.SockFilter{Code: has, Jf: 1, K: unix.CLONE_NEWCGROUP}, unix.SockFilter{Code: ret, K: refuse}, allow)
		}
		own = append(own, unix.SockFilter{Code: equal, Jf: 3, K: table.socket}, first)
		own = append(own, refuseIf(unix.AF_VSOCK)...)
		own = append(own, allow)
		filter = append(filter, unix.SockFilter{Code: equal, Jt: 1, K: table.arch}, unix.SockFilter{Code: jump, K: uint32(len(own))})
		filter = append(filter, own...)
	}
	return append(filter, unix.SockFilter{Code: ret, K: refuse})
}

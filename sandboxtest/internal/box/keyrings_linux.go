package box

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Keyrings are what no namespace separates: a box would share those of its user
// and of the session that the emulator was started from with the machine and all
// other boxes. So its programs can't use any, as in Docker.

// keyCalls are the three system calls of an architecture, by the number by which
// the kernel knows it.
type keyCalls struct {
	arch  uint32
	calls []uint32
}

// keyCallsOf has, with an architecture, those whose programs it runs as well.
var keyCallsOf = map[string][]keyCalls{
	"amd64": {
		{unix.AUDIT_ARCH_X86_64, []uint32{248, 249, 250, x32 | 248, x32 | 249, x32 | 250}},
		{unix.AUDIT_ARCH_I386, []uint32{286, 287, 288}},
	},
	"386":     {{unix.AUDIT_ARCH_I386, []uint32{286, 287, 288}}},
	"arm64":   {{unix.AUDIT_ARCH_AARCH64, []uint32{217, 218, 219}}, {unix.AUDIT_ARCH_ARM, []uint32{309, 310, 311}}},
	"arm":     {{unix.AUDIT_ARCH_ARM, []uint32{309, 310, 311}}},
	"riscv64": {{unix.AUDIT_ARCH_RISCV64, []uint32{217, 218, 219}}},
	"loong64": {{unix.AUDIT_ARCH_LOONGARCH64, []uint32{217, 218, 219}}},
	"ppc64le": {{unix.AUDIT_ARCH_PPC64LE, []uint32{269, 270, 271}}},
	"s390x":   {{unix.AUDIT_ARCH_S390X, []uint32{278, 279, 280}}},
}

// x32 marks the calls of programs with short pointers.
const x32 = 0x40000000

// newSessionKeyring gives the calling thread, and what it starts, a session's
// keyring of its own in the place of that of the login. A kernel without keyrings,
// or a user with too many, has none to give.
func newSessionKeyring() { _, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) }

// refuseKeyrings makes the kernel refuse the calls to programs that the calling
// thread starts.
func refuseKeyrings() error {
	known := keyCallsOf[runtime.GOARCH]
	if known == nil {
		return fmt.Errorf("keep programs from the kernel's keyrings on %s: %w", runtime.GOARCH, errors.ErrUnsupported)
	}
	filter := keyFilter(known)
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// A thread that may change its namespaces may do this without giving up the
	// rights of set-id programs, such as sudo.
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0); err != nil {
		return fmt.Errorf("keep programs from the kernel's keyrings: %w", err)
	}
	return nil
}

// keyFilter refuses the calls, and every call of another architecture.
func keyFilter(known []keyCalls) []unix.SockFilter {
	const (
		load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
		number, arch     = 0, 4 // in struct seccomp_data
		refuse           = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	)
	filter := []unix.SockFilter{{Code: load, K: arch}}
	for _, a := range known {
		filter = append(filter, unix.SockFilter{Code: equal, Jf: uint8(2*len(a.calls) + 2), K: a.arch}, unix.SockFilter{Code: load, K: number})
		for _, call := range a.calls {
			filter = append(filter, unix.SockFilter{Code: equal, Jf: 1, K: call}, unix.SockFilter{Code: ret, K: refuse})
		}
		filter = append(filter, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW})
	}
	return append(filter, unix.SockFilter{Code: ret, K: refuse})
}

package box

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Some system calls reach what no namespace separates, or a part of the kernel
// that no program of a sandbox needs: the keyrings that a box would share with its
// user, with the session that the emulator was started from and with all other
// boxes; the kernel's log and clocks; BPF, performance counters, io_uring. The
// kernel refuses them to programs of a box, as in Docker, whose profile this
// follows. Unlike there, programs may make user namespaces and mount in them, if
// users of the machine may: browsers contain their pages so, and the service's
// machines allow it. A namespace of control groups is refused, since a program that
// is root could mount the group that it shares with this process there, and limit,
// freeze or end it.

// refusedCall is a system call, by its number in each of the kernel's tables.
type refusedCall struct {
	name                                   string
	x86, i386, generic, arm, powerpc, s390 int16 // none if negative
}

var refusedCalls = []refusedCall{
	{"_sysctl", 156, 149, -1, 149, 149, 149},
	{"acct", 163, 51, 89, 51, 51, 51},
	{"add_key", 248, 286, 217, 309, 269, 278},
	{"bpf", 321, 357, 280, 386, 361, 351},
	{"clock_settime", 227, 264, 112, 262, 245, 259},
	{"clock_settime64", -1, 404, -1, 404, -1, -1},
	{"delete_module", 176, 129, 106, 129, 129, 129},
	{"fanotify_init", 300, 338, 262, 367, 323, 332},
	{"finit_module", 313, 350, 273, 379, 353, 344},
	{"get_mempolicy", 239, 275, 236, 320, 260, 269},
	{"init_module", 175, 128, 105, 128, 128, 128},
	{"io_uring_enter", 426, 426, 426, 426, 426, 426},
	{"io_uring_register", 427, 427, 427, 427, 427, 427},
	{"io_uring_setup", 425, 425, 425, 425, 425, 425},
	{"ioperm", 173, 101, -1, -1, 101, -1},
	{"iopl", 172, 110, -1, -1, 110, -1},
	{"kcmp", 312, 349, 272, 378, 354, 343},
	{"kexec_file_load", 320, -1, 294, 401, 382, 381},
	{"kexec_load", 246, 283, 104, 347, 268, 277},
	{"keyctl", 250, 288, 219, 311, 271, 280},
	{"lookup_dcookie", 212, 253, 18, 249, 235, 110},
	{"mbind", 237, 274, 235, 319, 259, 268},
	{"migrate_pages", 256, 294, 238, 400, 258, 287},
	{"move_pages", 279, 317, 239, 344, 301, 310},
	{"nfsservctl", 180, 169, 42, 169, 168, 169},
	{"open_by_handle_at", 304, 342, 265, 371, 346, 336},
	{"perf_event_open", 298, 336, 241, 364, 319, 331},
	{"pidfd_getfd", 438, 438, 438, 438, 438, 438},
	{"process_madvise", 440, 440, 440, 440, 440, 440},
	{"quotactl", 179, 131, 60, 131, 131, 131},
	{"quotactl_fd", 443, 443, 443, 443, 443, 443},
	{"reboot", 169, 88, 142, 88, 88, 88},
	{"request_key", 249, 287, 218, 310, 270, 279},
	{"set_mempolicy", 238, 276, 237, 321, 261, 270},
	{"set_mempolicy_home_node", 450, 450, 450, 450, 450, 450},
	{"settimeofday", 164, 79, 170, 79, 79, 79},
	{"stime", -1, 25, -1, -1, 25, -1},
	{"swapoff", 168, 115, 225, 115, 115, 115},
	{"swapon", 167, 87, 224, 87, 87, 87},
	{"sysfs", 139, 135, -1, 135, 135, 135},
	{"syslog", 103, 103, 116, 103, 103, 103},
	{"uselib", 134, 86, -1, 86, 86, 86},
	{"userfaultfd", 323, 374, 282, 388, 364, 355},
	{"ustat", 136, 62, -1, 62, 62, 62},
	{"vhangup", 153, 111, 58, 111, 111, 111},
	{"vm86", -1, 166, -1, -1, 113, -1},
	{"vm86old", -1, 113, -1, -1, -1, -1},
}

// refusedSockets are kinds of addresses: those of the kernel's ciphers, which have
// written to files that are only read, and of a machine's hypervisor, which are in no
// namespace.
var refusedSockets = []uint32{unix.AF_ALG, unix.AF_VSOCK}

// callTable is one of the kernel's tables, by the number of its architecture.
type callTable struct {
	arch   uint32
	number func(refusedCall) int16
	// socket is the call that makes a socket; its first argument is the kind of
	// address. (That of an older call, socketcall, is in memory, where a filter does
	// not look; programs of 32 bits need it.)
	socket int16
	// clone and unshare make namespaces; flags is which argument of clone says of
	// what.
	clone, unshare int16
	flags          uint32
}

// clone3 is the call's number in all tables.
const clone3 = 435

func numberX86(r refusedCall) int16     { return r.x86 }
func numberI386(r refusedCall) int16    { return r.i386 }
func numberGeneric(r refusedCall) int16 { return r.generic }
func numberARM(r refusedCall) int16     { return r.arm }
func numberPowerPC(r refusedCall) int16 { return r.powerpc }
func numberS390(r refusedCall) int16    { return r.s390 }

var (
	tableX86  = callTable{unix.AUDIT_ARCH_X86_64, numberX86, 41, 56, 272, 0}
	tableI386 = callTable{unix.AUDIT_ARCH_I386, numberI386, 359, 120, 310, 0}
	tableARM  = callTable{unix.AUDIT_ARCH_ARM, numberARM, 281, 120, 337, 0}
)

// callTables has, for a machine, that of its programs and of others that it runs
// as well.
var callTables = map[string][]callTable{
	"amd64":   {tableX86, tableI386},
	"386":     {tableI386},
	"arm64":   {{unix.AUDIT_ARCH_AARCH64, numberGeneric, 198, 220, 97, 0}, tableARM},
	"arm":     {tableARM},
	"riscv64": {{unix.AUDIT_ARCH_RISCV64, numberGeneric, 198, 220, 97, 0}},
	"loong64": {{unix.AUDIT_ARCH_LOONGARCH64, numberGeneric, 198, 220, 97, 0}},
	"ppc64le": {{unix.AUDIT_ARCH_PPC64LE, numberPowerPC, 326, 120, 282, 0}},
	"s390x":   {{unix.AUDIT_ARCH_S390X, numberS390, 359, 120, 303, 1}},
}

// newSessionKeyring gives the calling thread, and what it starts, a session's
// keyring of its own in the place of that of the login. A kernel without keyrings,
// or a user with too many, has none to give.
func newSessionKeyring() { _, _ = unix.KeyctlInt(unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0, 0, 0) }

// refuseCalls makes the kernel refuse them to programs that the calling thread
// starts. A filter can't see what clone3 makes, so that the kernel has none, and
// libraries use clone instead.
func refuseCalls() error {
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
		for _, r := range refusedCalls {
			if n := table.number(r); n >= 0 {
				own = append(own, refuseIf(uint32(n))...)
			}
		}
		own = append(own, unix.SockFilter{Code: equal, Jf: 1, K: clone3}, unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)})
		for _, maker := range []struct {
			call  int16
			flags uint32
		}{{table.clone, table.flags}, {table.unshare, 0}} {
			own = append(own, unix.SockFilter{Code: equal, Jf: 4, K: uint32(maker.call)}, low(maker.flags),
				unix.SockFilter{Code: has, Jf: 1, K: unix.CLONE_NEWCGROUP}, unix.SockFilter{Code: ret, K: refuse}, allow)
		}
		own = append(own, unix.SockFilter{Code: equal, Jf: uint8(1 + 2*len(refusedSockets)), K: uint32(table.socket)}, low(0))
		for _, kind := range refusedSockets {
			own = append(own, refuseIf(kind)...)
		}
		own = append(own, allow)
		filter = append(filter, unix.SockFilter{Code: equal, Jt: 1, K: table.arch}, unix.SockFilter{Code: jump, K: uint32(len(own))})
		filter = append(filter, own...)
	}
	return append(filter, unix.SockFilter{Code: ret, K: refuse})
}

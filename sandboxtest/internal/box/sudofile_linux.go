package box

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// A file that is bound has the mode that it has on the host, so the bit that
// gives sudo its rights has to be on another: a program of its own that does
// nothing but start sudoProgram with the arguments and the environment that it
// was given. It is made here, since it is too small to be worth a compiler.

// elfAddr is where it is loaded.
const elfAddr = 0x400000

// starters are the machines' ways to say execve(path, argv, envp), and
// exit(126) when that returns. The path follows the code.
var starters = map[string]struct {
	machine elf.Machine
	code    []byte
}{
	"amd64": {elf.EM_X86_64, []byte{
		0x48, 0x8b, 0x0c, 0x24, // mov rcx, [rsp]
		0x48, 0x8d, 0x74, 0x24, 0x08, // lea rsi, [rsp+8]
		0x48, 0x8d, 0x54, 0xcc, 0x10, // lea rdx, [rsp+rcx*8+16]
		0x48, 0x8d, 0x3d, 0x13, 0, 0, 0, // lea rdi, [rip+19]
		0xb8, unix.SYS_EXECVE & 0xff, 0, 0, 0, // mov eax, 59
		0x0f, 0x05, // syscall
		0xbf, 126, 0, 0, 0, // mov edi, 126
		0xb8, 60, 0, 0, 0, // mov eax, 60
		0x0f, 0x05, // syscall
	}},
	"arm64": {elf.EM_AARCH64, []byte{
		0xe9, 0x03, 0x40, 0xf9, // ldr x9, [sp]
		0xe1, 0x23, 0x00, 0x91, // add x1, sp, #8
		0x22, 0x0c, 0x09, 0x8b, // add x2, x1, x9, lsl #3
		0x42, 0x20, 0x00, 0x91, // add x2, x2, #8
		0xc0, 0x00, 0x00, 0x10, // adr x0, .+24
		0xa8, 0x1b, 0x80, 0xd2, // mov x8, #221
		0x01, 0x00, 0x00, 0xd4, // svc #0
		0xc0, 0x0f, 0x80, 0xd2, // mov x0, #126
		0xa8, 0x0b, 0x80, 0xd2, // mov x8, #93
		0x01, 0x00, 0x00, 0xd4, // svc #0
	}},
}

// starter is the program that starts path, false on machines that it is not
// written for.
func starter(path string) ([]byte, bool) {
	s, ok := starters[runtime.GOARCH]
	if !ok {
		return nil, false
	}
	head := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(s.machine), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		Entry: elfAddr + 64 + 56,
	}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	text := append(slices.Clone(s.code), path+"\x00"...)
	size := uint64(64 + 56 + len(text))
	load := elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: elfAddr, Paddr: elfAddr, Filesz: size, Memsz: size, Align: 0x10000,
	}
	var out bytes.Buffer
	for _, part := range []any{&head, &load, text} {
		_ = binary.Write(&out, binary.LittleEndian, part) // of fixed size, to memory
	}
	return out.Bytes(), true
}

// bindSelf shows this program at the backend's mounts, for its boxes. One whose
// file is no longer there has no sudo to give.
func (n *namespaceBackend) bindSelf() error {
	// By its name, since the link leads to another mount namespace.
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	n.self = n.mounts + "/exe"
	if err := writeFile(n.self, "", 0o755); err != nil {
		return err
	}
	if err := (mountPoint{source: program, target: n.self, flags: unix.MS_BIND}).mount(); err != nil {
		n.log.Info("boxes have no sudo but the host's", "error", err)
	}
	return nil
}

// addSudo gives a base layer sudo where root finds it, unless the host has its
// own.
func addSudo(base string) error {
	if slices.ContainsFunc(filepath.SplitList(searchPath()), func(dir string) bool { return executable(filepath.Join(dir, "sudo")) == nil }) {
		return nil
	}
	program, ok := starter(sudoProgram)
	if !ok {
		return nil
	}
	dir := filepath.Dir(sudoName)
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if err := copyDir(base, dir, info.Mode()); err != nil {
		return err
	}
	name := base + sudoName
	return errors.Join(os.WriteFile(name, program, 0o600), os.Chmod(name, 0o755|fs.ModeSetuid))
}

// makeOwnRun makes the directory of what a box needs to be one in a base layer.
func makeOwnRun(base string) error {
	return errors.Join(os.MkdirAll(base+ownBin, 0o755), os.WriteFile(base+sudoProgram, nil, 0o755),
		os.Symlink(sudoProgram, base+ownBin+"/sudo"))
}

// showSelf binds this program into a box, unless the box has removed its place.
func (n *namespaceBackend) showSelf(root string) error {
	target := root + sudoProgram
	if info, err := os.Lstat(target); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if err := bindReadOnly(n.self, target); err != nil {
		return fmt.Errorf("show sudo: %w", err)
	}
	return nil
}

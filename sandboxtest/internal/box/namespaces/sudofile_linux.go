package namespaces

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/box/backend"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/inside"
	"github.com/go-vercel/sandbox/sandboxtest/internal/box/sudo"
)

// Programs expect a sandbox's sudo to need no password, so a sandbox needs a set-user-ID
// program. If the host has sudo, sandboxes use it, but few containers have it. Other
// choices don't work:
//
//   - This program can act as sudo. But a file that is bound into a sandbox has the mode
//     that it has on the host, where it must not be set-user-ID. A set-user-ID copy
//     would take tens of megabytes for each host directory.
//   - A binary embedded in the source can't be reviewed, and the machine may have no
//     compiler.
//
// Therefore the set-user-ID program is some 60 bytes of machine code after the smallest
// header that the kernel accepts. It only starts a command, with its own arguments and
// environment. The command is this program, bound into the sandbox, which then acts as
// sudo. Each byte has its instruction next to it, and TestStarter runs the code. Machines
// of other architectures have only the host's sudo.

// elfAddr is the address at which the starter is loaded.
const elfAddr = 0x400000

// starters generate, for each architecture, the code of a program that runs a command: the
// given words, followed by the program's own arguments. The program exits with 126 if that
// fails. offsets are the positions of the words from the start of the code.
//
// The stack begins with the number of arguments, their addresses and a zero. The code
// writes the addresses of the words in front of those of the arguments, over the first one,
// so that they form one list.
var starters = map[string]struct {
	machine elf.Machine
	code    func(offsets []int) []byte
}{
	"amd64": {elf.EM_X86_64, starterAMD64},
	"arm64": {elf.EM_AARCH64, starterARM64},
}

// wordOffset returns where on the stack the address of the i-th of n words is stored.
func wordOffset(i, n int) int32 { return int32(8 - 8*(n-1-i)) }

func starterAMD64(offsets []int) []byte {
	code := []byte{
		0x48, 0x8b, 0x0c, 0x24, // mov rcx, [rsp]
		0x48, 0x8d, 0x54, 0xcc, 0x10, // lea rdx, [rsp+rcx*8+16]
	}
	number := func(n int32) { code = binary.LittleEndian.AppendUint32(code, uint32(n)) }
	for i, offset := range offsets {
		code = append(code, 0x48, 0x8d, 0x05) // lea rax, [rip+…]
		number(int32(offset - len(code) - 4))
		code = append(code, 0x48, 0x89, 0x84, 0x24) // mov [rsp+…], rax
		number(wordOffset(i, len(offsets)))
	}
	code = append(code, 0x48, 0x8d, 0xb4, 0x24) // lea rsi, [rsp+…]
	number(wordOffset(0, len(offsets)))
	return append(code,
		0x48, 0x8b, 0x3e, // mov rdi, [rsi]
		0xb8, unix.SYS_EXECVE&0xff, 0, 0, 0, // mov eax, 59
		0x0f, 0x05, // syscall
		0xbf, 126, 0, 0, 0, // mov edi, 126
		0xb8, 60, 0, 0, 0, // mov eax, 60
		0x0f, 0x05, // syscall
	)
}

func starterARM64(offsets []int) []byte {
	var code []byte
	add := func(instructions ...uint32) {
		for _, i := range instructions {
			code = binary.LittleEndian.AppendUint32(code, i)
		}
	}
	add(
		0xf94003e9, // ldr x9, [sp]
		0x910023e2, // add x2, sp, #8
		0x8b090c42, // add x2, x2, x9, lsl #3
		0x91002042, // add x2, x2, #8
	)
	for i, offset := range offsets {
		away := uint32(offset - len(code))
		add(0x10000000|away&3<<29|away>>2&0x7ffff<<5, // adr x0, …
			0xf80003e0|uint32(wordOffset(i, len(offsets)))&0x1ff<<12) // stur x0, [sp, #…]
	}
	if first := wordOffset(0, len(offsets)); first < 0 {
		add(0xd10003e1 | uint32(-first)<<10) // sub x1, sp, #…
	} else {
		add(0x910003e1 | uint32(first)<<10) // add x1, sp, #…
	}
	add(
		0xf9400020, // ldr x0, [x1]
		0xd2801ba8, // mov x8, #221
		0xd4000001, // svc #0
		0xd2800fc0, // mov x0, #126
		0xd2800ba8, // mov x8, #93
		0xd4000001, // svc #0
	)
	return code
}

// starter returns the program that starts a command with the given first words. It
// returns false on architectures for which it was not written.
func starter(words ...string) ([]byte, bool) {
	s, ok := starters[runtime.GOARCH]
	if !ok {
		return nil, false
	}
	offsets := make([]int, len(words))
	at := len(s.code(offsets))
	var text []byte
	for i, word := range words {
		offsets[i] = at + len(text)
		text = append(append(text, word...), 0)
	}
	text = slices.Concat(s.code(offsets), text)
	head := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(s.machine), Version: uint32(elf.EV_CURRENT), Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
		Entry: elfAddr + 64 + 56,
	}
	copy(head.Ident[:], elf.ELFMAG)
	head.Ident[elf.EI_CLASS], head.Ident[elf.EI_DATA], head.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
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

// addSudo adds a program sudo to a base layer, unless the machine has its own. The program
// starts a command that begins with words.
func (b baseLayer) addSudo(path string, words ...string) error {
	if slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool { return inside.CheckExecutable(filepath.Join(dir, "sudo")) == nil }) {
		return nil
	}
	name, err := b.resolveMissing(sudo.SystemName)
	if err != nil {
		return err
	}
	if err := b.makeDir(filepath.Dir(name)); err != nil {
		return err
	}
	return b.writeStarter(name, 0o755|fs.ModeSetuid, words...)
}

// writeStarter writes a program that starts a command, if the architecture is supported.
func (b baseLayer) writeStarter(name string, mode fs.FileMode, words ...string) error {
	program, ok := starter(words...)
	if !ok {
		return nil
	}
	return errors.Join(os.WriteFile(b.name(name), program, 0o600), os.Chmod(b.name(name), mode))
}

// makeRunDir creates sudo.RunDir, the emulator's directory, in a base layer.
func (b baseLayer) makeRunDir() error {
	err := errors.Join(os.MkdirAll(b.name(sudo.BinDir), 0o755), os.WriteFile(b.name(sudo.Program), nil, 0o755), writeFile(b.name(sudo.PathFile), backend.SearchPath(), 0o644))
	for _, name := range append([]string{"sudo"}, sudo.UserTools...) {
		err = errors.Join(err, os.Symlink(sudo.Program, b.name(sudo.BinDir+"/"+name)))
	}
	return err
}

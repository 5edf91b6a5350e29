package backend

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// procStat is the content of /proc/PID/stat.
type procStat struct {
	state            byte
	flags            int
	cpu              time.Duration
	envStart, envEnd uint64 // the addresses of the environment; 0 during exec
}

// StopSignal stops a process.
const StopSignal = syscall.SIGSTOP

// clockTick is the unit of times in /proc on every Linux that Go supports.
const clockTick = 10 * time.Millisecond

func readStat(pid int) (procStat, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	// The name is in parentheses and may contain any character.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return procStat{}, false
	}
	fields := strings.Fields(string(data[i+1:]))
	if len(fields) < 15 {
		return procStat{}, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	s := procStat{
		state: fields[0][0], flags: num(6),
		cpu: time.Duration(num(11)+num(12)+num(13)+num(14)) * clockTick,
	}
	if len(fields) > 48 {
		s.envStart, _ = strconv.ParseUint(fields[47], 10, 64)
		s.envEnd, _ = strconv.ParseUint(fields[48], 10, 64)
	}
	return s, true
}

// isEnding reports whether a process is a zombie or is exiting.
func (s procStat) isEnding() bool {
	return s.state == 'Z' || s.state == 'X' || s.flags&exiting != 0
}

// allPIDs lists the processes that the host sees.
func allPIDs() []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Reaper kills the processes of sandboxes by the marker in their environment. Calls that
// arrive during a search of /proc share the next search.
type Reaper struct {
	searching sync.Mutex // held during a search

	mu   sync.Mutex
	next *search
}

// search is a search for the processes of sandboxes.
type search struct {
	ids  map[string]bool
	done chan struct{}
}

// Kill kills the processes of a sandbox until none remains.
func (r *Reaper) Kill(id string) {
	r.mu.Lock()
	mine, first := r.next, r.next == nil
	if first {
		mine = &search{ids: make(map[string]bool), done: make(chan struct{})}
		r.next = mine
	}
	mine.ids[id] = true
	r.mu.Unlock()
	if !first {
		<-mine.done
		return
	}
	r.searching.Lock()
	defer r.searching.Unlock()
	r.mu.Lock()
	r.next = nil
	r.mu.Unlock()
	KillMarked(mine.ids)
	close(mine.done)
}

// KillMarked kills the processes that have one of the markers until none remains. It
// searches again only after it has killed a process, or a process has ended whose marker
// was unknown: these may have started another one. On a busy machine new programs start
// all the time, so waiting for a search without new processes would take long.
func KillMarked(ids map[string]bool) {
	var unsure []int
	again := true
	for range 100 {
		if again {
			unsure = allPIDs()
		}
		found := environments(unsure)
		again = !again && len(found) < len(unsure)
		unsure = nil
		for pid, env := range found {
			switch {
			case ids[marker(env)]:
				again = true
				_ = syscall.Kill(pid, syscall.SIGKILL)
			case len(env) == 0 && mayHaveEnvironment(pid):
				unsure = append(unsure, pid)
			}
		}
		if !again && len(unsure) == 0 {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// environments returns the environment of each process that can be read. Root without all
// capabilities, as in a container, may not read another user's, but can become that user.
func environments(pids []int) map[int][]byte {
	found := make(map[int][]byte, len(pids))
	denied := make(map[[2]int][]int) // by user and group
	read := func(pid int) error {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err == nil {
			found[pid] = env
		}
		return err
	}
	for _, pid := range pids {
		if err := read(pid); !errors.Is(err, fs.ErrPermission) || os.Geteuid() != 0 {
			continue
		}
		var st syscall.Stat_t
		if syscall.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && st.Uid != 0 {
			owner := [2]int{int(st.Uid), int(st.Gid)}
			denied[owner] = append(denied[owner], pid)
		}
	}
	for owner, theirs := range denied {
		_ = AsUser(owner[0], owner[1], func() error {
			for _, pid := range theirs {
				_ = read(pid)
			}
			return nil
		})
	}
	return found
}

// mayHaveEnvironment reports whether a process may have an environment although it looks
// empty. During exec, it looks empty from the moment when the kernel drops the old program
// until the new one is set up. Shortly before that, the kernel knows the address of the new
// environment, but not its length. The process is busy then, whereas a program with an
// empty environment sleeps now and then.
func mayHaveEnvironment(pid int) bool {
	s, ok := readStat(pid)
	if !ok || s.isEnding() || s.flags&kernelThread != 0 {
		return false
	}
	busy := s.state == 'R' || s.state == 'D'
	// The process may have an environment by now.
	return s.envEnd == 0 || s.envStart != s.envEnd || busy
}

// marker returns the ID of the sandbox that an environment contains, or "".
func marker(env []byte) string {
	for len(env) > 0 {
		entry, rest, _ := bytes.Cut(env, []byte{0})
		if id, ok := bytes.CutPrefix(entry, []byte(MarkerKey+"=")); ok {
			return string(id)
		}
		env = rest
	}
	return ""
}

// The kernel's flags of a process that is exiting, and of a kernel thread.
const (
	exiting      = 0x4
	kernelThread = 0x200000
)

// IsGone reports whether a process does not exist, is a zombie or is exiting.
func IsGone(pid int) bool {
	s, ok := readStat(pid)
	return !ok || s.isEnding()
}

// ProcessCPU returns the CPU time of a running process and its dead children.
func ProcessCPU(pid int) time.Duration {
	s, _ := readStat(pid)
	return s.cpu
}

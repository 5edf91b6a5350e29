package box

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hasMarker says that processes are found by what is in their environment.
const hasMarker = true

// procStat is what /proc/PID/stat tells.
type procStat struct {
	pid, parent, group, session int
	zombie                      bool
	cpu                         time.Duration
}

// clockTick is the unit of times in /proc; it is the same on every Linux that
// Go runs on.
const clockTick = 10 * time.Millisecond

func readStat(pid int) (procStat, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return procStat{}, false
	}
	// The name is in parentheses and may hold anything.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return procStat{}, false
	}
	fields := strings.Fields(string(data[i+1:]))
	if len(fields) < 15 {
		return procStat{}, false
	}
	num := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	return procStat{
		pid: pid, zombie: fields[0] == "Z", parent: num(1), group: num(2), session: num(3),
		cpu: time.Duration(num(11)+num(12)+num(13)+num(14)) * clockTick,
	}, true
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

// killTree kills a process, its group and session, and its descendants.
func killTree(pid int) {
	victims := descendants(pid)
	_ = syscall.Kill(-pid, syscall.SIGKILL)
	for _, victim := range victims {
		_ = syscall.Kill(victim, syscall.SIGKILL)
	}
}

func descendants(pid int) []int {
	children := make(map[int][]int)
	var found []int
	for _, other := range allPIDs() {
		s, ok := readStat(other)
		if !ok || other == pid {
			continue
		}
		if s.session == pid || s.group == pid {
			found = append(found, other)
		}
		children[s.parent] = append(children[s.parent], other)
	}
	seen := map[int]bool{pid: true}
	queue := append([]int{pid}, found...)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for _, child := range children[next] {
			if !seen[child] {
				seen[child] = true
				found = append(found, child)
				queue = append(queue, child)
			}
		}
	}
	return found
}

// killMarked kills every process that has the marker in its environment, until
// there is none.
func killMarked(marker string) {
	needle := append([]byte{0}, marker...)
	for range 50 {
		alive := false
		for _, pid := range allPIDs() {
			env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
			if err != nil || !hasVariable(env, needle) {
				continue
			}
			if s, ok := readStat(pid); !ok || s.zombie {
				continue
			}
			alive = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if !alive {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// hasVariable looks for "\x00KEY=value" as a whole entry.
func hasVariable(env, needle []byte) bool {
	env = append([]byte{0}, env...)
	i := bytes.Index(env, needle)
	return i >= 0 && (i+len(needle) == len(env) || env[i+len(needle)] == 0)
}

// processCPU is the CPU time of a running process and its dead children.
func processCPU(pid int) time.Duration {
	s, _ := readStat(pid)
	return s.cpu
}

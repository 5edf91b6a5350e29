package engine

import (
	"errors"
	"sync/atomic"
	"time"
)

// TreeVariable is the environment variable that identifies a process in the sandbox. Its
// descendants inherit it.
const TreeVariable = "GO_SANDBOX_COMMAND"

// TreeGrace limits each of the two final requests of a kill. They are needed if the kill's
// context ends before it is known whether the script has started.
const TreeGrace = 500 * time.Millisecond

// TreeFound is the writer for the script's output. The script writes a line once it has
// stopped the process and all its descendants. Output that is longer comes from another
// program and is refused, because it could fill the caller's disk.
type TreeFound struct{ written atomic.Int64 }

const maxTreeOutput = 4 << 10

// Write implements [io.Writer].
func (f *TreeFound) Write(p []byte) (int, error) {
	if f.written.Add(int64(len(p))) > maxTreeOutput {
		return 0, errors.New("the program that signals the processes writes too much output")
	}
	return len(p), nil
}

// Found reports whether the script has found the processes.
func (f *TreeFound) Found() bool {
	n := f.written.Load()
	return n > 0 && n <= maxTreeOutput
}

// Exit codes of TreeScript if it can't see all processes, or may not signal one. Root can.
const (
	TreeHidden  = 4
	TreeRefused = 5
)

// TreeScript sends the signal $1 to the process that was started with $2 as the value of
// TreeVariable, and to all its descendants. It first stops them all, so that it misses no new
// one, then sends the signal, then continues them. It writes a line when all are stopped.
// After SIGKILL it repeats the signal until none remains, for at most a minute.
//
// A sudo above the process is stopped first and continued last. Otherwise it would stop itself
// when its command stops, and nobody would continue it.
//
// The process is a child of the service, like this script, or of a sudo that is one. Its
// descendants have the variable too, but another parent. If there are several candidates,
// the oldest is used. With $3 all processes with the variable are signaled: once the
// process alone was killed, nothing else identifies its descendants.
//
// A process that receives SIGSTOP during a fork creates the child before it stops. The
// script therefore looks for new children after all have stopped. A process in a system
// call may stop late or never, for example if it waits for a stopped child that does not
// have its own memory yet. The script waits for a limited number of rounds.
//
// POSIX does not specify how read treats NUL bytes. If the shell reads an environment
// without the variable, an exact check follows, but only in the second and third try,
// because it needs two processes.
//
// Exit code 3 means that no process was found, 4 that the environment of a candidate can't be
// read, 5 that a process may not be signaled and none was, and 6 that a process was not
// signaled or did not end.
const TreeScript = `sig=$1 want=` + TreeVariable + `=$2 all=$3 sudo= nl='
'
[ -r /proc/self/stat ] || exit 3
look() {
	{ IFS= read -r line < "/proc/$1/stat"; } 2>/dev/null || return
	comm=${line#*\(} comm=${comm%)*}
	set -- ${line##*) }
	state=$1 parent=$2 start=${20}
}
above() {
	up=$1 sudos=
	while look "$up" && up=$parent && look "$up" && [ "$comm" = sudo ]; do sudos="$up:$start $sudos"; done
}
may_sudo() {
	[ -n "$sudo" ] || { sudo=no; sudo -n sh -c : 2>/dev/null && sudo=yes; }
	[ "$sudo" = yes ]
}
marked() {
	some=
	if { while IFS= read -r part || [ -n "$part" ]; do case $part in *"$want"*) some=1;; esac; done < "/proc/$1/environ"; } 2>/dev/null; then
		[ -n "$some" ] || [ "$try" != 1 ] || return 1
		{ env=$(tr '\000' '\n' < "/proc/$1/environ"); } 2>/dev/null || return
	else
		owner= known=
		{ while read -r key _ value _; do [ "$key" != Uid: ] || owner=$value; done < "/proc/$1/status"; } 2>/dev/null
		for who in 0 $owner; do
			may_sudo && env=$(sudo -n -u "#$who" sh -c 'exec tr "\000" "\n" < "/proc/$1/environ"' sh "$1" 2>/dev/null) && known=1 && break
		done
		[ -n "$known" ] || { ! look "$1" || hidden=1; return 1; }
	fi
	case $nl$env$nl in *"$nl$want$nl"*) ;; *) return 1;; esac
}
send() {
	kill -"$1" "$2" 2>/dev/null || { may_sudo && sudo -n sh -c 'kill -"$1" "$2"' sh "$1" "$2" 2>/dev/null; } || ! look "$2" || [ "$state" = Z ]
}
proceed() {
	back=
	for it in $held; do back="$it $back"; done
	for it in $back; do ! look "${it%:*}" || [ "$start" != "${it#*:}" ] || send CONT "${it%:*}"; done
}
give_up() {
	proceed
	exit 5
}
seek() {
	root= tree= hidden=
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		[ "$pid" != $$ ] && above "$pid" && { [ "$up" = "$service" ] || [ -n "$all" ]; } || continue
		look "$pid" && [ "$state" != Z ] && marked "$pid" && look "$pid" || continue
		[ -z "$all" ] || tree="$tree$pid:$start "
		[ -n "$root" ] && [ "$start" -ge "$oldest" ] || root=$pid oldest=$start
	done
	[ -n "$root" ]
}
hold() {
	send STOP "$1" || give_up
	look "$1" || return
	[ "$start" = "$2" ] || { send CONT "$1"; return 1; }
	held="$held$1:$2 "
}
above $$
service=$up
for try in 1 2 3; do
	seek && break
	[ -z "$hidden" ] || exit 4
	sleep 0.1 2>/dev/null || sleep 1
done
[ -n "$root" ] || exit 3
seen=${tree:-$root:$oldest} tree=' ' held= outer=
for it in $seen; do above "${it%:*}"; outer="$outer$sudos"; done
for it in $outer; do hold "${it%:*}" "${it#*:}"; done
for it in $seen; do ! hold "${it%:*}" "${it#*:}" || tree="$tree$it "; done
[ "$tree" != ' ' ] || exit 3
again=1 rounds=0
while [ -n "$again" ]; do
	again=
	for it in $tree; do
		[ $rounds -lt 20 ] && look "${it%:*}" && [ "$start" = "${it#*:}" ] || continue
		case $state in [TtZXx]) ;; *) again=1;; esac
	done
	rounds=$((rounds + 1))
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		case $tree in *" $pid:"*) continue;; esac
		look "$pid" && [ "$state" != Z ] || continue
		case $tree in *" $parent:"*) ;; *) continue;; esac
		hold "$pid" "$start" || continue
		tree="$tree$pid:$start " again=1
	done
done
echo
failed=0
for it in $tree; do send "$sig" "${it%:*}" || failed=6; done
proceed
[ "$sig" = 9 ] || exit $failed
for pause in 0 1 2 3 4 5 6 7 8 9; do
	for try in 1 2 3 4 5 6; do
		left=
		for it in $tree; do
			look "${it%:*}" && [ "$start" = "${it#*:}" ] && [ "$state" != Z ] || continue
			send 9 "${it%:*}"
			left=1
		done
		[ -n "$left" ] || exit 0
		case $pause in 0) sleep 0.05 2>/dev/null || sleep 1;; *) sleep 1;; esac
	done
done
exit 6`

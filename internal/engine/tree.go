package engine

import (
	"errors"
	"sync/atomic"
	"time"
)

// TreeVariable is the variable by which a process is known in the sandbox. What
// it starts inherits it.
const TreeVariable = "GO_SANDBOX_COMMAND"

// TreeGrace is how long each of the two requests may take by which a kill ends
// whose context has ended before it was known whether its script has begun.
const TreeGrace = 500 * time.Millisecond

// TreeFound is written by the script once it has the process and all that
// descends from it, stopped. What writes more than the script's line is another
// program, and is refused: it would fill the disk of whoever keeps its output.
type TreeFound struct{ written atomic.Int64 }

const maxTreeOutput = 4 << 10

// Write takes the script's output.
func (f *TreeFound) Write(p []byte) (int, error) {
	if f.written.Add(int64(len(p))) > maxTreeOutput {
		return 0, errors.New("the program that signals the processes writes more than it has to say")
	}
	return len(p), nil
}

// Found reports whether they were found.
func (f *TreeFound) Found() bool {
	n := f.written.Load()
	return n > 0 && n <= maxTreeOutput
}

// Exit codes of TreeScript: it can't see all processes, or may not signal one,
// which root can and may.
const (
	TreeHidden  = 4
	TreeRefused = 5
)

// TreeScript sends the signal $1 to the process that was started with the
// variable of the value $2, and to all that descend from it, which it stops
// first, so that none is missed because it was just made, and lets them continue.
// A sudo above it is stopped before and continued after them: it stops itself
// when it sees its command stopped, and then nobody continues it.
// It writes a line when all are stopped. After SIGKILL it goes on until none is
// left, for a minute at most.
//
// The process is a child of the service, as this script is, perhaps by way of
// sudo: what has inherited the variable from it is not. Of several the oldest is
// taken. With $3 they are all that have the variable: once the process has been
// killed alone, nothing else tells what came from it.
//
// A process that is told to stop while it makes another has that one before it
// stops: whether there are more is looked for once all have stopped. One that waits
// for the kernel may take long, or does not, as for a child that is stopped before it
// has its own memory: it is waited for some rounds.
//
// A process of which the environment's text lacks the variable is not looked at
// more closely, which takes two processes, but for the second and third try: what a
// shell's read makes of the zero bytes in it is not said.
//
// Exit code 3 says that there is none, 4 that there may be one whose environment
// can't be read, 5 that a process may not be signaled, before any was, and 6 that
// one was not, or does not end.
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

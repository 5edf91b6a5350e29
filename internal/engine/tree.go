package engine

// TreeScript sends the signal $1 to a process that is stopped and to all that
// descend from it, which it stops first, so that none is missed because it was
// just made, and lets them continue. $2 and what follows are the name and the
// arguments that the process was started with. It prints how many it reached.
//
// The process is found as a child of the service, as this script is, that is
// stopped. If there are several, its command line decides. Exit code 3 says that
// it was not found, 4 that it can't be told from others, and 5 that a process
// may not be signaled.
const TreeScript = `sig=$1; shift
[ -r /proc/self/stat ] || exit 3
stat() { { IFS= read -r line < "/proc/$1/stat"; } 2>/dev/null || return; set -- ${line##*) }; state=$1 parent=$2; }
send() { kill -"$1" "$2" 2>/dev/null || sudo -n kill -"$1" "$2" 2>/dev/null || ! stat "$2" || [ "$state" = Z ]; }
command_line() { tr '\000' '\n' < "/proc/$1/cmdline" 2>/dev/null; }
stopped= n=0
for dir in /proc/[0-9]*; do
	pid=${dir#/proc/}
	stat "$pid" && [ "$parent" = "$PPID" ] && [ "$state" = T ] || continue
	stopped="$stopped $pid" n=$((n+1))
done
if [ $n -gt 1 ]; then
	want=$(printf '%s\n' "$@") all=$stopped stopped= n=0
	for pid in $all; do
		[ "$(command_line "$pid")" = "$want" ] || continue
		stopped="$stopped $pid" n=$((n+1))
	done
	[ $n -le 1 ] || exit 4
fi
[ $n = 1 ] || exit 3
tree=" ${stopped# } " grown=1
while [ -n "$grown" ]; do
	grown=
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		case $tree in *" $pid "*) continue;; esac
		stat "$pid" && [ "$state" != Z ] || continue
		case $tree in *" $parent "*) ;; *) continue;; esac
		send STOP "$pid" || exit 5
		tree="$tree$pid " grown=1
	done
done
n=0
for pid in $tree; do send "$sig" "$pid" || exit 5; n=$((n+1)); done
[ "$sig" = 9 ] || for pid in $tree; do send CONT "$pid"; done
echo $n`

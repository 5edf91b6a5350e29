try() {
	command -v "$1" >/dev/null 2>&1 || return 0
	"$@"
	code=$?
	[ $code = 126 ] || [ $code = 127 ] || exit $code
}
[ -z "$1" ] || try python3 -I -c "$1"
[ -z "$2" ] || try node -e "$2"
echo "a tunnel needs python3 or node, and the image has neither"
exit 127

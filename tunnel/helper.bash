exec 3<>"/dev/tcp/127.0.0.1/$1" || exec 3<>"/dev/tcp/::1/$1" || exit 111
printf '\001sandbox-tunnel-plain\002'
exec 2>/dev/null
cat <&0 >&3 &
cat <&3
kill $! 2>/dev/null
exit 0

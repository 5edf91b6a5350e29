package namespaces

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/go-vercel/sandbox/sandboxtest/internal/firewall"
)

// routeEntry is the kernel's struct rtentry.
type routeEntry struct {
	_       uintptr
	dst     unix.RawSockaddrInet4
	gateway unix.RawSockaddrInet4
	mask    unix.RawSockaddrInet4
	flags   uint16
	_       int16
	_       uintptr
	_       uintptr
	metric  int16
	device  *byte
	mtu     uintptr
	window  uintptr
	irtt    uint16
}

// addDefaultRoute sends everything to the host, in the calling thread's network.
func addDefaultRoute() error {
	any4 := unix.RawSockaddrInet4{Family: unix.AF_INET}
	route := routeEntry{dst: any4, gateway: any4, mask: any4, flags: unix.RTF_UP | unix.RTF_GATEWAY}
	route.gateway.Addr = firewall.HostAddr.As4()
	return withSocket(func(sock int) error {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(sock), unix.SIOCADDRT, uintptr(unsafe.Pointer(&route)))
		if errno != 0 {
			return fmt.Errorf("add the default route: %w", errno)
		}
		return nil
	})
}

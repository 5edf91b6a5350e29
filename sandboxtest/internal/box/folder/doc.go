// Package folder runs the commands of boxes as processes of the host that work in a
// folder, on every system. Where the host is root, they have the rights of nobody.
// Its tests are those of package box, in folder mode; guest_linux_test.go there is
// about nobody.
package folder

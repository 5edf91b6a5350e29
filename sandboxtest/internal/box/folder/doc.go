// Package folder runs the commands of sandboxes as processes of the host that work in a
// folder, on every system. If the host is root, they have the rights of nobody. The tests
// of package box test it in folder mode; nobody_linux_test.go there tests the user nobody.
package folder

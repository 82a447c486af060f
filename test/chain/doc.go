// Package chain holds the tests of the plugin as a container runtime meets it: libcni executes the
// real chain of bridge, host-local and the plugin's binary in real network namespaces. It has
// nothing but tests.
package chain

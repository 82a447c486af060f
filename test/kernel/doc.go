// Package kernel holds the tests of the rules against the real kernel: the five laws of the
// redirect package, for every dialect and both families, and fates of real connections. It has
// nothing but tests.
package kernel

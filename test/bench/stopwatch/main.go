// Stopwatch runs a program and adds a line to its standard error: wall time and CPU time in
// nanoseconds, and the most memory that was resident, in KiB.
//
//	stopwatch program [arguments]
//
// Be aware: it is a program of its own because Linux counts the memory of whoever starts a program
// as the program's (exec_mmap in fs/exec.c takes over the old high-water mark). This one has next
// to none.
package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "stopwatch:", err)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	began := time.Now()
	// os.StartProcess would try out first what the kernel can do, at the cost of a process.
	pid, err := syscall.ForkExec(args[0], args,
		&syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		return 1, fmt.Errorf("start %s: %w", args[0], err)
	}
	var status syscall.WaitStatus
	var used syscall.Rusage
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		_, err = syscall.Wait4(pid, &status, 0, &used)
	}
	took := time.Since(began)
	if err != nil {
		return 1, fmt.Errorf("wait for %s: %w", args[0], err)
	}
	fmt.Fprintln(os.Stderr, took.Nanoseconds(), used.Utime.Nano()+used.Stime.Nano(), used.Maxrss)
	if status.Signaled() {
		return 1, fmt.Errorf("run %s: %v", args[0], status.Signal())
	}
	return status.ExitStatus(), nil
}

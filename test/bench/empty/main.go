// Empty does nothing. What it takes to start it is the least that a program in Go can take.
package main

func main() {}

// Echo says hello to whoever connects. As "echo call URL" it says what another said.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "call" {
		return call(args[1])
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, name, "listens")
	return http.ListenAndServe(":8080",
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintln(w, "hello from", name)
		}))
}

func call(url string) error {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

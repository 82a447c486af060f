package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// asked is a question that was answered.
type asked struct {
	Me     string // the asker's end
	Caller string // whom the server saw
}

// Of the format of RFC 1035: a head of twelve bytes, the question, the answers.
const (
	headSize  = 12
	typeText  = 16
	classIN   = 1
	namesHere = 5353 // a port that needs no right
)

// ask puts a question for a text: SERVER NAME [TIMES]. Every one must be answered.
func ask(lines *json.Encoder, args []string) error {
	if len(args) < 2 {
		return errors.New("want a server and a name")
	}
	times := 1
	if len(args) > 2 {
		n, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		times = n
	}
	server := args[0]
	if server == "-" {
		s, err := nameserver()
		if err != nil {
			return err
		}
		server = s
	}
	for i := range times {
		answer, me, err := put(server, question(uint16(i), args[1]))
		if err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
		text, err := textIn(answer, uint16(i))
		if err != nil {
			return fmt.Errorf("question %d: %w", i, err)
		}
		if err := lines.Encode(asked{me, text}); err != nil {
			return err
		}
	}
	return nil
}

// serveNames answers every question with a text: whom it sees.
func serveNames(lines *json.Encoder) error {
	packets, err := net.ListenUDP("udp", &net.UDPAddr{Port: namesHere})
	if err != nil {
		return err
	}
	if err := lines.Encode(Ready{"names"}); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for {
		n, caller, err := packets.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return err
		}
		if n <= headSize {
			continue
		}
		// whoever does not wait is gone
		_, _ = packets.WriteToUDPAddrPort(answerTo(buffer[:n], plain(caller).String()), caller)
	}
}

func question(id uint16, name string) []byte {
	q := binary.BigEndian.AppendUint16(nil, id)
	q = append(q, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0) // recursion is desired; one question
	for label := range strings.SplitSeq(name, ".") {
		q = append(append(q, byte(len(label))), label...)
	}
	return append(q, 0, 0, typeText, 0, classIN)
}

func answerTo(question []byte, text string) []byte {
	a := append([]byte{}, question...)
	a[2] |= 0x80 // it is an answer
	a[7] = 1     // of one record
	a = append(a, 0xc0, headSize, 0, typeText, 0, classIN, 0, 0, 0, 0)
	a = binary.BigEndian.AppendUint16(a, uint16(len(text)+1))
	return append(append(a, byte(len(text))), text...)
}

// nameIn returns the name that is asked for.
func nameIn(question []byte) string {
	labels := []string{}
	for rest := question[min(headSize, len(question)):]; len(rest) > 0 && rest[0] > 0 &&
		len(rest) > int(rest[0]); rest = rest[1+int(rest[0]):] {
		labels = append(labels, string(rest[1:1+int(rest[0])]))
	}
	return strings.Join(labels, ".")
}

// textIn returns the text of an answer, which is its end.
func textIn(answer []byte, id uint16) (string, error) {
	asked := len(question(id, nameIn(answer)))
	const record = 13 // up to the text
	if len(answer) <= asked+record || binary.BigEndian.Uint16(answer) != id {
		return "", fmt.Errorf("no answer of ours: % x", answer)
	}
	return string(answer[asked+record:]), nil
}

func nameserver() (string, error) {
	conf, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(conf)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "nameserver" {
			return net.JoinHostPort(f[1], "53"), nil
		}
	}
	return "", errors.New("/etc/resolv.conf: no nameserver")
}

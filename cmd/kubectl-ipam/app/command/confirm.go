package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Confirmed asks on a terminal whether to go on. If there is no terminal, it requires --yes.
func (e *Env) Confirmed(ctx context.Context, yes bool, question string) error {
	if yes {
		return nil
	}
	file, isFile := e.In.(*os.File)
	if !isFile || !term.IsTerminal(int(file.Fd())) {
		return Coded(ExitUsage, errors.New("there is no terminal to ask on: confirm with --yes"))
	}
	return ask(ctx, e.In, e.ErrOut, question)
}

// ask asks a question, to which only y and yes mean yes. It stops waiting for the answer when the
// context is done.
func ask(ctx context.Context, in io.Reader, out io.Writer, question string) error {
	fmt.Fprint(out, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // the end of the input is a no
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(out)
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
	}
	return errors.New("not confirmed: nothing was done")
}

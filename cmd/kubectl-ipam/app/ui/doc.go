// Package ui serves the browser view of the register to the person who has started it, and
// to nobody else: on the loopback interface, with a token that is known to who can read what
// the command prints.
//
// The guard decides which requests are served, the stream sends the register of package
// live and what changes in it, and questions are answered by the commands of the plug-in.
// What is drawn is in web/, as plain ES modules. The server knows nothing of it.
package ui

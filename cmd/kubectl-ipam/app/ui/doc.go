// Package ui serves the browser view of the register to the user who has started it, and to no
// other user: on the loopback interface, with a token that only readers of the command's output
// know.
//
// The guard decides which requests are served, the stream sends the register of package live and
// its changes, and the commands of the plug-in answer questions. The page is in web/, as plain ES
// modules. The server knows nothing of it.
package ui

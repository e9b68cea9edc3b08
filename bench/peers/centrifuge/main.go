// The Centrifuge library as a server: in memory, without tokens, at a free port of loopback. It prints `ready at URL`,
// as the project's own servers do, and ends by SIGTERM. Every setting is the library's default, but that anybody may
// connect, subscribe to every channel and publish to it.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"

	"github.com/centrifugal/centrifuge"
)

func main() {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		log.Fatal(err)
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		// Without credentials of some kind the library closes the connection; an empty user is an anonymous one.
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, done centrifuge.SubscribeCallback) {
			done(centrifuge.SubscribeReply{}, nil)
		})
		client.OnPublish(func(_ centrifuge.PublishEvent, done centrifuge.PublishCallback) {
			done(centrifuge.PublishReply{}, nil)
		})
	})
	if err := node.Run(); err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ready at ws://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{})))
}

// The Centrifuge library as a server: in memory, without tokens, on loopback, at `-port` (0, the default: a free one).
// It prints `ready at URL`, as the project's own servers do, and ends by SIGTERM. Every setting is the library's
// default, except that anybody may connect, subscribe to every channel and publish to it, and where noted below.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/centrifugal/centrifuge"
)

const (
	// Channels of one client, by default 128: the topics workload subscribes one to 2^21, and its adapter's tests to some
	// more.
	clientChannelsMax = 1<<21 + 1<<16
	// Bytes of a channel's name, by default 255: a topic has 1,024.
	channelBytesMax = 1024
	// Bytes of a client's message, by default 64 KiB: less than the largest payload with its topic takes. As for NATS.
	messageBytesMax = 1 << 20
	// Slow receivers get time, not infinity, as the other servers give it: a Python receiver may stall for seconds at the
	// greatest rate. Bytes that wait for a client, by default 1 MiB, and how long a write may take, by default 1 s.
	queueBytesMax = 256 << 20
	writeTimeout  = 30 * time.Second
)

func main() {
	port := flag.Int("port", 0, "where it listens; 0: a free one")
	flag.Parse()
	node, err := centrifuge.New(centrifuge.Config{
		// A client gets the program's version when it connects: the library's, since the library is under test.
		Version:            release(),
		ClientChannelLimit: clientChannelsMax,
		ChannelMaxLength:   channelBytesMax,
		ClientQueueMaxSize: queueBytesMax,
	})
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
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("ready at ws://%s\n", listener.Addr())
	log.Fatal(http.Serve(listener, centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		MessageSizeLimit: messageBytesMax,
		WriteTimeout:     writeTimeout,
	})))
}

// release is the library's, as Go has written it into the program.
func release() string {
	if built, ok := debug.ReadBuildInfo(); ok {
		for _, module := range built.Deps {
			if module.Path == "github.com/centrifugal/centrifuge" {
				return module.Version
			}
		}
	}
	return ""
}

package kafka_test

import (
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// endConnections shuts down every connection of this process to a port of addrs, as a firewall may.
// It finds them by their file descriptors, because librdkafka takes no dialer from a test. If a
// descriptor is closed and used again meanwhile, another connection is cut by chance.
func endConnections(addrs []string) {
	var ports []int
	for _, addr := range addrs {
		_, port, _ := net.SplitHostPort(addr)
		if n, err := strconv.Atoi(port); err == nil {
			ports = append(ports, n)
		}
	}
	open, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		peer, err := syscall.Getpeername(fd)
		if err != nil {
			continue // no connection
		}
		if slices.Contains(ports, portOf(peer)) {
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
}

func portOf(peer syscall.Sockaddr) int {
	switch at := peer.(type) {
	case *syscall.SockaddrInet4:
		return at.Port
	case *syscall.SockaddrInet6:
		return at.Port
	default:
		return 0
	}
}

// spike MIB: many goroutines together touch so much memory, some start children, and the program exits at once.
// Prints the peak of its memory by the kernel, in KiB.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

func main() {
	mib, _ := strconv.Atoi(os.Args[1])
	memory := make([]byte, mib<<20)
	var all sync.WaitGroup
	for part := 0; part < 64; part++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for at := part * len(memory) / 64; at < (part+1)*len(memory)/64; at += 4096 {
				memory[at] = 1
			}
			if part%8 == 0 {
				if err := exec.Command("/bin/true").Run(); err != nil {
					os.Exit(3)
				}
			}
		}()
	}
	all.Wait()
	status, _ := os.ReadFile("/proc/self/status")
	fmt.Println(strings.Fields(string(status[bytes.Index(status, []byte("VmHWM:")):]))[1])
	os.Exit(int(memory[0]) - 1)
}

module github.com/onceward/onceward/tools

go 1.26

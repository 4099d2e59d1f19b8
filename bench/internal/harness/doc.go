// Package harness times several ways of doing one workload, in turn and in one run, and
// keeps the ratios.
//
// Machines are noisy: absolute figures move by a factor of two between runs. So every round
// times each side once, the order rotates from round to round, and only the ratio of two
// sides within one round counts. A figure of a results file is the median over all rounds.
package harness

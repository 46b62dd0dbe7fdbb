# SPDX-License-Identifier: BSD-3-Clause
"""The numbers of the framework's counter_random: SplitMix64 from a state that hashes seed, stream and row."""
import math

MASK = 2**64 - 1
GOLDEN = 0x9e3779b97f4a7c15


def mix(x):
    x &= MASK
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 & MASK
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb & MASK
    return x ^ (x >> 31)


class CounterRandom:
    def __init__(self, seed, stream, row):
        self.state = mix(mix(mix(seed + GOLDEN) ^ (stream + 0xd1b54a32d192ed03)) ^ (row + 0x8cb92ba72f3d8dd7))

    def bits(self):
        self.state += GOLDEN
        return mix(self.state)

    def uniform(self):
        return (self.bits() >> 11) * 2.0**-53

    def normal(self):
        radius = math.sqrt(-2 * math.log(self.uniform() + 2.0**-53))
        return radius * math.cos(2 * math.pi * self.uniform())

    def below(self, bound):
        while True:
            product = self.bits() * bound
            if product & MASK >= 2**64 % bound:
                return product >> 64

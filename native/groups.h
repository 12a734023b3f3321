// Inputs that one output reads through the same kernel: they are added up first.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "convolve.h"
#include "parallel.h"
#include "planes.h"

namespace chmnet {

struct Group {
    int kernel;
    std::vector<long> inputs;
};

// first_equal: of each kernel the first that is the same; null: none are.
inline std::vector<Group> groups_of(long output, const Connections &connections, const int *first_equal) {
    std::vector<Group> groups;
    for (long input = 0; input < connections.inputs; ++input) {
        int kernel = connections.kernel_of[output * connections.inputs + input];
        if (kernel < 0) continue;
        if (first_equal) kernel = first_equal[kernel];
        auto same = std::find_if(groups.begin(), groups.end(), [&](const Group &g) { return g.kernel == kernel; });
        if (same == groups.end()) same = groups.insert(groups.end(), Group{kernel, {}});
        same->inputs.push_back(input);
    }
    return groups;
}

// sum: room for one channel.
inline void add_up(const Planes &planes, const std::vector<long> &inputs, float *sum, const Kernels &kernels,
                   int threads) {
    const long floats = planes.channel_floats(), piece = 16384;
    parallel((floats + piece - 1) / piece, threads, [&](long number, int) {
        const long start = number * piece, length = std::min(piece, floats - start);
        kernels.add(sum + start, planes.channel(inputs[0]) + start, planes.channel(inputs[1]) + start, length);
        for (std::size_t i = 2; i < inputs.size(); ++i)
            kernels.add(sum + start, sum + start, planes.channel(inputs[i]) + start, length);
    });
}

}  // namespace chmnet

// Four-dimensional convolution over many channels, and the gradient of its kernel. float32, stride 1, zero padding.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace chmnet {

// A tensor [batch, channels, d1, d2, d3, d4] anywhere in memory; strides in floats.
struct Tensor {
    const float *data;
    long batch, channels;
    long size[4];
    long stride[6];
};

// Which kernel joins which channels. Leading dimensions, such as the scales of a 6D correlation, are channels here:
// pairs far apart have no kernel between them, and many pairs share one.
struct Connections {
    const float *kernels;  // [kernels, k1, k2, k3, k4]
    long count;            // of kernels
    long family;           // consecutive kernels that may be equal: those of one pair of true channels
    long taps[4];
    const int *kernel_of;  // [outputs, inputs]: number of the kernel, or -1
    long outputs, inputs;
};

// Sets of inner loops that this processor can run, the fastest first.
std::vector<const Kernels *> supported_kernels();
const Kernels *find_kernels(const std::string &name);  // null if unknown or unsupported

// Positions along d1 that are wanted of a result.
struct Rows {
    long first, count;
};

// result: [batch, outputs, rows, d2, d3, d4], contiguous; bias: [outputs] or null.
void convolve(const Tensor &x, const Connections &connections, const float *bias, float *result, Rows rows,
              const Kernels &kernels, int threads);

// A center-pivot kernel: [k1, k2] taps over (d1, d2), with those over (d3, d4) in the middle, and [k3, k4] the other
// way round. Their middle taps, which are one, are added up.
struct Pivot {
    const float *source, *target;
    long taps[4];
};

// x: one channel; result: [batch, rows, d2, d3, d4], contiguous.
void convolve_pivot(const Tensor &x, const Pivot &pivot, float bias, float *result, Rows rows, const Kernels &kernels,
                    int threads);

// Gradient of the loss with respect to each kernel: result [kernels, k1, k2, k3, k4]. Halved: a kernel is the same when
// d1 and d3 are turned round together, and when d2 and d4 are; the first of such taps holds the sum of all, the others 0.
void kernel_gradient(const Tensor &x, const Tensor &gradient, const Connections &connections, bool halved,
                     float *result, const Kernels &kernels, int threads);

}  // namespace chmnet

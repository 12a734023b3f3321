// The compiled kernels against plain loops, to be run under the address and the thread sanitizer. See the Makefile.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "../convolve.h"

using namespace chmnet;

namespace {

struct Case {
    const char *name;
    long batch, inputs, outputs;
    long size[4], taps[4];
    bool symmetric;
};

const Case kCases[] = {
    {"even sizes", 2, 1, 1, {4, 6, 4, 8}, {5, 5, 5, 5}, false},
    {"psi-like", 1, 1, 1, {7, 9, 5, 11}, {5, 5, 5, 5}, true},
    {"whole vectors", 1, 1, 1, {6, 8, 6, 30}, {5, 5, 5, 5}, true},
    {"odd sizes and taps", 1, 2, 3, {3, 5, 7, 1}, {3, 1, 5, 3}, false},
    {"one row", 1, 1, 2, {1, 1, 1, 17}, {5, 5, 5, 5}, false},
    {"one position", 1, 1, 1, {1, 1, 1, 1}, {5, 5, 5, 5}, true},
    {"one tap", 2, 3, 2, {2, 3, 2, 3}, {1, 1, 1, 1}, true},
    {"many channels", 1, 7, 2, {3, 4, 3, 5}, {5, 5, 5, 5}, false},
    {"empty batch", 0, 1, 1, {3, 3, 3, 3}, {3, 3, 3, 3}, false},
    {"long and thin", 1, 1, 1, {2, 1, 40, 2}, {3, 3, 3, 7}, true},
};

struct Data {
    std::vector<float> x, kernels, bias, result, gradient;
    std::vector<int> table;
    Tensor view, gradient_view;
    Connections joined;
};

long at(const long size[4], long a, long b, long c, long d) { return ((a * size[1] + b) * size[2] + c) * size[3] + d; }

// The value of a strided tensor, zero outside.
float value(const Tensor &x, long item, long channel, long a, long b, long c, long d) {
    if (a < 0 || b < 0 || c < 0 || d < 0 || a >= x.size[0] || b >= x.size[1] || c >= x.size[2] || d >= x.size[3])
        return 0.0f;
    return x.data[item * x.stride[0] + channel * x.stride[1] + a * x.stride[2] + b * x.stride[3] + c * x.stride[4] +
                  d * x.stride[5]];
}

Tensor view_of(const std::vector<float> &values, long batch, long channels, const long size[4], bool reversed) {
    Tensor view{values.data() + 1, batch, channels, {size[0], size[1], size[2], size[3]}, {}};  // not on a border
    const long extents[6] = {batch, channels, size[0], size[1], size[2], size[3]};
    long stride = 1;
    for (int step = 0; step < 6; ++step) {
        const int axis = reversed ? step : 5 - step;
        view.stride[axis] = stride;
        stride *= extents[axis];
    }
    return view;
}

Data make(const Case &c, bool reversed) {
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    Data data;
    const long positions = c.size[0] * c.size[1] * c.size[2] * c.size[3];
    const long taps = c.taps[0] * c.taps[1] * c.taps[2] * c.taps[3];
    const long kernels = c.inputs * c.outputs;
    data.x.resize(c.batch * c.inputs * positions + 1);
    data.gradient.resize(c.batch * c.outputs * positions + 1);
    data.result.resize(c.batch * c.outputs * positions);
    data.kernels.resize(kernels * taps);
    data.bias.resize(c.outputs);
    for (auto *values : {&data.x, &data.gradient, &data.kernels, &data.bias})
        for (float &number : *values) number = normal(generator);
    if (c.symmetric)
        for (long kernel = 0; kernel < kernels; ++kernel)
            for (long i = 0; i < taps; ++i) {
                const long d = i % c.taps[3], e = i / c.taps[3] % c.taps[2], b = i / c.taps[3] / c.taps[2] % c.taps[1];
                const long a = i / c.taps[3] / c.taps[2] / c.taps[1];
                float *k = data.kernels.data() + kernel * taps;
                const long ra = c.taps[0] - 1 - a, rb = c.taps[1] - 1 - b, re = c.taps[2] - 1 - e, rd = c.taps[3] - 1 - d;
                k[at(c.taps, ra, b, re, d)] = k[at(c.taps, a, rb, e, rd)] = k[at(c.taps, ra, rb, re, rd)] = k[i];
            }
    // Where there are several channels, two share a kernel, two kernels are equal, and one pair has none.
    for (long pair = 0; pair < kernels; ++pair) data.table.push_back(static_cast<int>(pair));
    long family = 1;
    if (c.inputs > 2) {
        data.table[1] = 0, data.table[2] = -1;
        for (long tap = 0; tap < taps; ++tap) data.kernels[(kernels - 1) * taps + tap] = data.kernels[(kernels - 2) * taps + tap];
        family = c.inputs;
    }
    data.view = view_of(data.x, c.batch, c.inputs, c.size, reversed);
    data.gradient_view = view_of(data.gradient, c.batch, c.outputs, c.size, reversed);
    data.joined = {data.kernels.data(), kernels, family, {c.taps[0], c.taps[1], c.taps[2], c.taps[3]},
                   data.table.data(), c.outputs, c.inputs};
    return data;
}

template <class Visit> void visit_products(const Case &c, const Data &data, Visit visit) {
    for (long item = 0; item < c.batch; ++item)
        for (long output = 0; output < c.outputs; ++output)
            for (long input = 0; input < c.inputs; ++input) {
                const int kernel = data.table[output * c.inputs + input];
                if (kernel < 0) continue;
                for (long position = 0; position < c.size[0] * c.size[1] * c.size[2] * c.size[3]; ++position) {
                    const long d = position % c.size[3], e = position / c.size[3] % c.size[2];
                    const long b = position / c.size[3] / c.size[2] % c.size[1];
                    const long a = position / c.size[3] / c.size[2] / c.size[1];
                    for (long p = 0; p < c.taps[0]; ++p)
                        for (long q = 0; q < c.taps[1]; ++q)
                            for (long r = 0; r < c.taps[2]; ++r)
                                for (long s = 0; s < c.taps[3]; ++s)
                                    visit(item, output, position, kernel, at(c.taps, p, q, r, s),
                                          value(data.view, item, input, a + p - c.taps[0] / 2, b + q - c.taps[1] / 2,
                                                e + r - c.taps[2] / 2, d + s - c.taps[3] / 2),
                                          value(data.gradient_view, item, output, a, b, e, d));
                }
            }
}

double largest_difference(const std::vector<float> &values, const std::vector<double> &expected) {
    double largest = 0.0, scale = 1e-30;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        largest = std::fmax(largest, std::fabs(values[i] - expected[i]));
        scale = std::fmax(scale, std::fabs(expected[i]));
    }
    return largest / scale;
}

// The gradient of taps that are each other's mirror images: their sum at the first of them, 0 at the others.
std::vector<double> mirrored_sums(const std::vector<double> &gradient, const Case &c) {
    std::vector<double> sums(gradient.size(), 0.0);
    const long taps = c.taps[0] * c.taps[1] * c.taps[2] * c.taps[3];
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        const long tap = static_cast<long>(i) % taps, kernel = static_cast<long>(i) / taps;
        long d = tap % c.taps[3], e = tap / c.taps[3] % c.taps[2], b = tap / c.taps[3] / c.taps[2] % c.taps[1];
        long a = tap / c.taps[3] / c.taps[2] / c.taps[1];
        if (a * c.taps[2] + e > (c.taps[0] * c.taps[2]) / 2) a = c.taps[0] - 1 - a, e = c.taps[2] - 1 - e;
        if (b * c.taps[3] + d > (c.taps[1] * c.taps[3]) / 2) b = c.taps[1] - 1 - b, d = c.taps[3] - 1 - d;
        sums[kernel * taps + at(c.taps, a, b, e, d)] += gradient[i];
    }
    return sums;
}

bool check(const Case &c, bool reversed, const Kernels &kernels, int threads) {
    Data data = make(c, reversed);
    const long positions = c.size[0] * c.size[1] * c.size[2] * c.size[3];
    const long taps = c.taps[0] * c.taps[1] * c.taps[2] * c.taps[3];
    std::vector<double> expected(data.result.size()), expected_gradient(data.kernels.size());
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = data.bias[i / positions % c.outputs];
    visit_products(c, data, [&](long item, long output, long position, long kernel, long tap, float x, float gradient) {
        expected[(item * c.outputs + output) * positions + position] += data.kernels[kernel * taps + tap] * x;
        expected_gradient[kernel * taps + tap] += gradient * x;
    });
    convolve(data.view, data.joined, data.bias.data(), data.result.data(), {0, c.size[0]}, kernels, threads);
    const Rows middle{c.size[0] / 3, (c.size[0] + 1) / 2};
    std::vector<float> rows(data.result.size() / c.size[0] * middle.count);
    convolve(data.view, data.joined, data.bias.data(), rows.data(), middle, kernels, threads);
    const std::size_t row = positions / c.size[0];
    bool same = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const std::size_t channel = i / (middle.count * row), inside = i % (middle.count * row);
        same = same && rows[i] == data.result[channel * positions + middle.first * row + inside];
    }
    std::vector<float> gradient(data.kernels.size());
    kernel_gradient(data.view, data.gradient_view, data.joined, false, gradient.data(), kernels, threads);
    const double forward = largest_difference(data.result, expected);
    const double backward = largest_difference(gradient, expected_gradient);
    kernel_gradient(data.view, data.gradient_view, data.joined, true, gradient.data(), kernels, threads);
    const double halved = largest_difference(gradient, mirrored_sums(expected_gradient, c));
    const bool good = same && forward < 1e-5 && backward < 1e-5 && halved < 1e-5;
    if (!good)
        std::printf("%s, %s, %d threads, reversed %d: %g %g %g\n", c.name, kernels.name, threads, reversed, forward,
                    backward, halved);
    return good;
}

}  // namespace

int main() {
    int failures = 0, checks = 0;
    for (const Kernels *kernels : supported_kernels())
        for (const Case &c : kCases)
            for (bool reversed : {false, true})
                for (int threads : {1, 2, 5}) {
                    ++checks;
                    failures += !check(c, reversed, *kernels, threads);
                }
    std::printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}

// What Python sees: chmnet._native.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "convolve.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Strided = nb::ndarray<const float, nb::ndim<6>, nb::device::cpu>;
using Dense = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Result = nb::ndarray<float, nb::ndim<6>, nb::c_contig, nb::device::cpu>;
using Gradient = nb::ndarray<float, nb::ndim<5>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<const int, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void require(bool condition, const char *message) {
    if (!condition) throw std::invalid_argument(message);
}

chmnet::Tensor tensor(const Strided &array) {
    chmnet::Tensor tensor{};
    tensor.data = array.data();
    tensor.batch = static_cast<long>(array.shape(0));
    tensor.channels = static_cast<long>(array.shape(1));
    for (int axis = 0; axis < 4; ++axis) tensor.size[axis] = static_cast<long>(array.shape(axis + 2));
    for (int axis = 0; axis < 6; ++axis) tensor.stride[axis] = static_cast<long>(array.stride(axis));
    return tensor;
}

chmnet::Connections connections(const float *kernels, const long taps[4], long count, const Table &table, long family) {
    chmnet::Connections connections{};
    connections.kernels = kernels;
    connections.count = count;
    connections.family = family;
    for (int axis = 0; axis < 4; ++axis) {
        connections.taps[axis] = taps[axis];
        require(taps[axis] % 2 == 1, "taps must be odd");
    }
    connections.kernel_of = table.data();
    connections.outputs = static_cast<long>(table.shape(0));
    connections.inputs = static_cast<long>(table.shape(1));
    require(family >= 1 && count % family == 0, "kernels must come in whole families");
    for (long pair = 0; pair < connections.outputs * connections.inputs; ++pair)
        require(connections.kernel_of[pair] >= -1 && connections.kernel_of[pair] < count, "no such kernel");
    return connections;
}

const chmnet::Kernels &instructions(const std::string &name) {
    const chmnet::Kernels *kernels = chmnet::find_kernels(name);
    require(kernels != nullptr, "unknown or unsupported instruction set");
    return *kernels;
}

chmnet::Rows rows_of(const chmnet::Tensor &x, const Result &result, long outputs, long first) {
    const char *message = "the result has the wrong shape";
    require(static_cast<long>(result.shape(0)) == x.batch && static_cast<long>(result.shape(1)) == outputs, message);
    const chmnet::Rows rows{first, static_cast<long>(result.shape(2))};
    require(first >= 0 && rows.count > 0 && first + rows.count <= x.size[0], message);
    for (int axis = 1; axis < 4; ++axis)
        require(static_cast<long>(result.shape(axis + 2)) == x.size[axis] && x.size[axis] > 0, message);
    return rows;
}

std::vector<std::string> instruction_sets() {
    std::vector<std::string> names;
    for (const chmnet::Kernels *kernels : chmnet::supported_kernels()) names.emplace_back(kernels->name);
    return names;
}

void convolve(const Strided &x, const Dense &kernels, const Table &table, long family, const Dense &bias,
              const Result &result, long first, const std::string &name, int threads) {
    require(kernels.ndim() == 5 && threads >= 1, "kernels must be [count, k1, k2, k3, k4], threads positive");
    long taps[4];
    for (int axis = 0; axis < 4; ++axis) taps[axis] = static_cast<long>(kernels.shape(axis + 1));
    const chmnet::Tensor input = tensor(x);
    const chmnet::Connections joined =
        connections(kernels.data(), taps, static_cast<long>(kernels.shape(0)), table, family);
    require(joined.inputs == input.channels, "the table must have one column for each input channel");
    require(bias.size() == 0 || static_cast<long>(bias.size()) == joined.outputs, "one bias for each output");
    const chmnet::Rows rows = rows_of(input, result, joined.outputs, first);
    const chmnet::Kernels &set = instructions(name);
    nb::gil_scoped_release release;
    chmnet::convolve(input, joined, bias.size() ? bias.data() : nullptr, result.data(), rows, set, threads);
}

void convolve_pivot(const Strided &x, const Matrix &source, const Matrix &target, float bias, const Result &result,
                    long first, const std::string &name, int threads) {
    const chmnet::Tensor input = tensor(x);
    const chmnet::Pivot pivot{source.data(), target.data(),
                              {static_cast<long>(source.shape(0)), static_cast<long>(source.shape(1)),
                               static_cast<long>(target.shape(0)), static_cast<long>(target.shape(1))}};
    for (long taps : pivot.taps) require(taps % 2 == 1, "taps must be odd");
    require(threads >= 1 && input.channels == 1, "one channel, threads positive");
    const chmnet::Rows rows = rows_of(input, result, 1, first);
    const chmnet::Kernels &set = instructions(name);
    nb::gil_scoped_release release;
    chmnet::convolve_pivot(input, pivot, bias, result.data(), rows, set, threads);
}

void kernel_gradient(const Strided &x, const Strided &gradient, const Table &table, bool halved,
                     const Gradient &result, const std::string &name, int threads) {
    long taps[4];
    for (int axis = 0; axis < 4; ++axis) taps[axis] = static_cast<long>(result.shape(axis + 1));
    const chmnet::Tensor input = tensor(x), output = tensor(gradient);
    const chmnet::Connections joined = connections(nullptr, taps, static_cast<long>(result.shape(0)), table, 1);
    require(threads >= 1 && joined.inputs == input.channels && joined.outputs == output.channels &&
                input.batch == output.batch,
            "the table must have one row for each output channel and one column for each input channel");
    for (int axis = 0; axis < 4; ++axis)
        require(input.size[axis] == output.size[axis] && input.size[axis] > 0, "x and gradient must be of one size");
    const chmnet::Kernels &set = instructions(name);
    nb::gil_scoped_release release;
    chmnet::kernel_gradient(input, output, joined, halved, result.data(), set, threads);
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "Compiled four-dimensional convolution; use it through chmnet.ops.conv_nd.";
    module.def("instruction_sets", &instruction_sets, "Sets of inner loops this processor can run, the fastest first.");
    module.def("convolve", &convolve, "x"_a, "kernels"_a, "table"_a, "family"_a, "bias"_a, "result"_a,
               "first"_a, "instructions"_a, "threads"_a, "Convolve into `result`; see convolve.h.");
    module.def("convolve_pivot", &convolve_pivot, "x"_a, "source"_a, "target"_a, "bias"_a, "result"_a, "first"_a,
               "instructions"_a, "threads"_a, "Convolve by a center-pivot kernel into `result`; see convolve.h.");
    module.def("kernel_gradient", &kernel_gradient, "x"_a, "gradient"_a, "table"_a, "halved"_a, "result"_a,
               "instructions"_a, "threads"_a, "Gradient of the kernels into `result`; see convolve.h.");
}

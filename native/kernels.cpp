// The inner loops in the compiler's portable vectors. This file is compiled once for each instruction set:
// CHMNET_TABLE names the table it defines, CHMNET_LANES the floats of a vector, CHMNET_ROWS how many rows of
// weights are worked on at once (as many as registers hold). It uses no library templates: a copy of one of
// them compiled for a newer processor could otherwise be linked into the code for an older one.
#include "kernels.h"

namespace chmnet {
namespace {

constexpr long kLanes = CHMNET_LANES;
constexpr long kBlock = 2;  // vectors worked on at once

typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef float AlignedVector __attribute__((vector_size(kLanes * sizeof(float)), may_alias));

inline AlignedVector load(const float *from) { return *reinterpret_cast<const Vector *>(from); }
inline void store(float *to, AlignedVector value) { *reinterpret_cast<Vector *>(to) = value; }

// Rows of weights by vectors: as many sums as registers hold, or fewer where there are fewer rows.
template <int Rows, int Block>
inline void weighted_rows(const WeightedSum &sum, long row, long column, const AlignedVector *planes) {
    AlignedVector total[Rows][Block];
    float *result = sum.result + row * sum.result_pitch + column;
    for (int m = 0; m < Rows; ++m)
        for (int n = 0; n < Block; ++n)
            total[m][n] = sum.add ? load(result + m * sum.result_pitch + n * kLanes) : AlignedVector{};
    for (long k = 0; k < sum.terms; ++k) {
        const float *weights = sum.rows[k] + row;
        const AlignedVector *values = planes + k * Block;
        for (int m = 0; m < Rows; ++m)
            for (int n = 0; n < Block; ++n) total[m][n] += weights[m] * values[n];
    }
    for (int m = 0; m < Rows; ++m)
        for (int n = 0; n < Block; ++n) store(result + m * sum.result_pitch + n * kLanes, total[m][n]);
}

template <int Rows, int Block>
inline void weighted_rows_of(int rows, const WeightedSum &sum, long row, long column, const AlignedVector *planes) {
    if (rows == Rows) return weighted_rows<Rows, Block>(sum, row, column, planes);
    if constexpr (Rows > 1) weighted_rows_of<Rows - 1, Block>(rows, sum, row, column, planes);
}

// From `column` on as far as whole blocks go; where they end.
template <int Rows, int Block>
long weighted_columns(const WeightedSum &sum, long column) {
    const long blocks = (sum.outputs + Rows - 1) / Rows;
    AlignedVector planes[kMaxTerms * Block];
    for (; column + Block * kLanes <= sum.length; column += Block * kLanes) {
        for (long k = 0; k < sum.terms; ++k)
            for (int n = 0; n < Block; ++n) {
                AlignedVector value = load(sum.first[k] + column + n * kLanes);
                if (sum.second[k]) value += load(sum.second[k] + column + n * kLanes);
                planes[k * Block + n] = value;
            }
        for (long block = 0; block < blocks; ++block) {
            const long row = block * sum.outputs / blocks, end = (block + 1) * sum.outputs / blocks;
            weighted_rows_of<Rows, Block>(static_cast<int>(end - row), sum, row, column, planes);
        }
    }
    return column;
}

void weighted_sum(const WeightedSum &sum) {
    constexpr int few = CHMNET_ROWS / 2;
    const long column = sum.outputs <= few ? weighted_columns<few, 2 * kBlock>(sum, 0) : 0;
    weighted_columns<CHMNET_ROWS, kBlock>(sum, column);
}

void shifted_sum(const ShiftedSum &sum) {
    constexpr int vectors = kLengthStep / kLanes >= 4 ? 4 : 2;
    for (long column = 0; column < sum.length; column += vectors * kLanes) {
        AlignedVector total[vectors] = {};
        for (long t = 0; t < sum.terms; ++t)
            for (int n = 0; n < vectors; ++n) total[n] += load(sum.planes[t] + column + n * kLanes);
        for (int n = 0; n < vectors; ++n) store(sum.result + column + n * kLanes, total[n] + sum.bias);
    }
}

template <int Results>
inline void sliding_sum_of(int results, const SlidingSum &sum, long start) {
    if (results < Results) {
        if constexpr (Results > 1) sliding_sum_of<Results - 1>(results, sum, start);
        return;
    }
    AlignedVector total[Results][kBlock];
    for (int m = 0; m < Results; ++m)
        for (int n = 0; n < kBlock; ++n) total[m][n] = AlignedVector{} + sum.bias;
    for (long t = 0; t < sum.terms; ++t) {
        const float weight = sum.weights[t], *plane = sum.planes[t] + start;
        for (int m = 0; m < Results; ++m)
            for (int n = 0; n < kBlock; ++n) total[m][n] += weight * load(plane + m * sum.pitch + n * kLanes);
    }
    for (int m = 0; m < Results; ++m)
        for (int n = 0; n < kBlock; ++n) store(sum.result + start + m * sum.pitch + n * kLanes, total[m][n]);
}

// Column by column of all results: what they read of each plane stays near.
void sliding_sum(const SlidingSum &sum) {
    constexpr int together = kLanes == 16 ? 8 : 4;  // as many as registers hold
    for (long column = 0; column < sum.length; column += kBlock * kLanes)
        for (long m = 0; m < sum.results; m += together) {
            const long left = sum.results - m;
            sliding_sum_of<together>(left < together ? static_cast<int>(left) : together, sum, column + m * sum.pitch);
        }
}

constexpr int kShifts = kLanes == 16 ? 5 : 3;  // by
constexpr int kPlanes = kLanes == 16 ? 5 : 4;  // products at once: as many as registers hold

template <int Shifts, int Planes>
inline void products(const ShiftedProducts &task, long shift, long plane) {
    AlignedVector total[Shifts][Planes] = {};
    for (long repeat = 0; repeat < task.repeats; ++repeat) {
        const float *shifted[Shifts], *planes[Planes];
        for (int s = 0; s < Shifts; ++s) shifted[s] = task.shifted[shift + s] + repeat * task.pitch;
        for (int g = 0; g < Planes; ++g) planes[g] = task.planes[plane + g] + repeat * task.pitch;
        for (long j = 0; j < task.length; j += kLanes) {
            AlignedVector values[Planes];
            for (int g = 0; g < Planes; ++g) values[g] = load(planes[g] + j);
            for (int s = 0; s < Shifts; ++s) {
                const AlignedVector x = load(shifted[s] + j);
                for (int g = 0; g < Planes; ++g) total[s][g] += x * values[g];
            }
        }
    }
    for (int g = 0; g < Planes; ++g)
        for (int s = 0; s < Shifts; ++s) {
            float *result = task.result + (task.places[plane + g] * task.shifts + shift + s) * kMaxLanes;
            store(result, load(result) + total[s][g]);
        }
}

template <int Shifts, int Planes>
inline void products_of_shifts(int shifts, const ShiftedProducts &task, long shift, long plane) {
    if (shifts == Shifts) return products<Shifts, Planes>(task, shift, plane);
    if constexpr (Shifts > 1) products_of_shifts<Shifts - 1, Planes>(shifts, task, shift, plane);
}

template <int Planes>
inline void products_of_planes(int planes, const ShiftedProducts &task, long plane) {
    if (planes == Planes) {
        const long blocks = (task.shifts + kShifts - 1) / kShifts;
        for (long block = 0; block < blocks; ++block) {
            const long shift = block * task.shifts / blocks, end = (block + 1) * task.shifts / blocks;
            products_of_shifts<kShifts, Planes>(static_cast<int>(end - shift), task, shift, plane);
        }
    } else if constexpr (Planes > 1) {
        products_of_planes<Planes - 1>(planes, task, plane);
    }
}

void shifted_products(const ShiftedProducts &task) {
    const long blocks = (task.count + kPlanes - 1) / kPlanes;
    for (long block = 0; block < blocks; ++block) {
        const long plane = block * task.count / blocks, end = (block + 1) * task.count / blocks;
        products_of_planes<kPlanes>(static_cast<int>(end - plane), task, plane);
    }
}

void add(float *result, const float *first, const float *second, long length) {
    for (long j = 0; j < length; j += kLanes) store(result + j, load(first + j) + load(second + j));
}

}  // namespace

#define CHMNET_TEXT_OF(name) #name
#define CHMNET_TEXT(name) CHMNET_TEXT_OF(name)

extern const Kernels CHMNET_TABLE;
const Kernels CHMNET_TABLE = {CHMNET_TEXT(CHMNET_NAME), kLanes, weighted_sum, shifted_sum, sliding_sum, shifted_products, add};

}  // namespace chmnet

// The inner loops, one table of functions for each instruction set. See kernels.cpp.
#pragma once

namespace chmnet {

// Weighted sums of planes: result[m][j] (+)= sum over k of rows[k][m] * (first[k][j] + second[k][j]).
struct WeightedSum {
    const float *const *rows;    // `terms` rows of `outputs` weights
    const float *const *first;   // `terms` planes
    const float *const *second;  // likewise; a null pointer stands for zeros
    long terms;
    long outputs;
    long length;       // of a plane, a multiple of kLengthStep
    float *result;     // `outputs` planes
    long result_pitch; // from one of them to the next
    bool add;          // to what is there already
};

// One plane as a sum of shifted planes: result[j] = bias + sum over t of planes[t][j].
struct ShiftedSum {
    const float *const *planes;  // each pointer already shifted
    long terms;
    long length;
    float bias;
    float *result;
};

// Several planes as weighted sums, where each reads one plane behind those that the one before it reads:
// result[m * pitch + j] = bias + sum over t of weights[t] * planes[t][m * pitch + j].
struct SlidingSum {
    const float *const *planes;  // each pointer already shifted
    const float *weights;
    long terms;
    long results;
    long pitch;  // from plane to plane
    long length;
    float bias;
    float *result;
};

// Products of planes, shifted, with other planes: result[g * shifts + s][lane] += sum of x[s][j] * planes[g][j], over
// `repeats` planes that follow each other on both sides.
struct ShiftedProducts {
    const float *const *shifted;  // `shifts` pointers into the plane
    long shifts;
    const float *const *planes;
    const long *places;  // result row of each of the `count` planes
    long count;
    long length;
    long repeats;
    long pitch;     // from one to the next
    float *result;  // kMaxLanes floats for each (place, shift)
};

struct Kernels {
    const char *name;
    long lanes;  // floats in a vector
    void (*weighted_sum)(const WeightedSum &);
    void (*shifted_sum)(const ShiftedSum &);
    void (*sliding_sum)(const SlidingSum &);
    void (*shifted_products)(const ShiftedProducts &);
    void (*add)(float *result, const float *first, const float *second, long length);
};

constexpr long kMaxLanes = 16;     // floats in the widest vector
constexpr long kLengthStep = 32;   // planes are padded to this many floats
constexpr long kMaxTerms = 128;    // of one weighted sum

extern const Kernels plain_kernels;
#ifdef CHMNET_X86
extern const Kernels avx2_kernels;
extern const Kernels avx512_kernels;
#endif
#ifdef CHMNET_WIDE
extern const Kernels wide_kernels;
#endif

}  // namespace chmnet

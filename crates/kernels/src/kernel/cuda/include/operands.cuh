// What a kernel is given: the addresses of its bindings in order, and behind them tensor maps, as one structure. It lies where
// the same pointers would lie as parameters.
#include "pipeline.cuh"

template <u32 COUNT> struct Bindings {
    const void* at[COUNT];
};
template <u32 COUNT, u32 MAPS> struct MappedBindings {
    const void* at[COUNT];
    TensorMap maps[MAPS];
};

// A weight as it is stored: elements or codes, and of codes the scales and zero points of their groups.
struct Weight {
    const char* codes;
    const char* scales;
    const char* zeros;
    // The one whose first array is the binding `at[first]`, of so many arrays.
    template <u32 ARRAYS> static INLINE Weight bound(const void* const* at, u32 first) {
        Weight w = {};
        w.codes = (const char*)at[first];
        if constexpr (ARRAYS > 1) w.scales = (const char*)at[first + 1];
        if constexpr (ARRAYS > 2) w.zeros = (const char*)at[first + 2];
        return w;
    }
};

// How weights are stored, by the number that planners give the format; each `load_*.cuh` has one.
namespace {
template <u32 FORMAT, u32 GROUP, bool ZEROS> struct StorageOf;
}

/* One vector of floats in a file: raw little-endian float32, or a row of a NumPy .npy file. */
#ifndef ENGINE_EXAMPLES_COMMON_FLOAT_VECTOR_H_
#define ENGINE_EXAMPLES_COMMON_FLOAT_VECTOR_H_

#include <stdint.h>

/* Reads row number `row` of `width` floats; the caller frees it. A .npy file must hold '<f4' in C order with
 * shape (width,) or (rows, width); any other file is raw and holds rows * width floats. row -1 = the only one.
 * NULL: reported on stderr. */
float *float_vector_read(const char *path, uint64_t width, int64_t row);

/* Writes `width` floats, as .npy of shape (width,) where the name ends so, else raw. 0 or CLI_FAILED, reported. */
int float_vector_write(const char *path, const float *values, uint64_t width);

#endif /* ENGINE_EXAMPLES_COMMON_FLOAT_VECTOR_H_ */

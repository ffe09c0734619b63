/* Reads and writes one vector of floats: raw float32, or the simple form of NumPy's .npy. */
#include "float_vector.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const char kMagic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6 };

/* The text after 'key': in the header dictionary, or NULL. */
static const char *find_key(const char *header, const char *key) {
  const char *at = strstr(header, key);
  if (!at) return NULL;
  at += strlen(key);
  while (*at == ' ' || *at == ':') ++at;
  return at;
}

/* Reads "(3, 576)" into dims; the number of dimensions, -1 where it is no shape of one or two. */
static int read_shape(const char *text, uint64_t dims[2]) {
  int n = 0;
  if (*text++ != '(') return -1;
  for (;;) {
    while (*text == ' ' || *text == ',') ++text;
    if (*text == ')') return n > 0 ? n : -1;
    char *end = NULL;
    errno = 0;
    const unsigned long long value = *text == '-' ? 0 : strtoull(text, &end, 10);
    if (!end || end == text || errno || n == 2) return -1;
    dims[n++] = value;
    text = end;
  }
}

/* Where the data of a .npy file begin and how many rows of `width` it has; 0, or 1 with the reason told. */
static int parse_npy(const char *path, const char *file, uint64_t n_bytes, uint64_t width,
                     uint64_t *offset, uint64_t *n_rows) {
  const unsigned char *p = (const unsigned char *)file;
  const uint64_t length_bytes = n_bytes > MAGIC_BYTES && p[MAGIC_BYTES] >= 2 ? 4 : 2;
  uint64_t header_bytes = 0;
  *offset = MAGIC_BYTES + 2 + length_bytes;
  if (n_bytes >= *offset) {
    for (uint64_t i = 0; i < length_bytes; ++i) {
      header_bytes |= (uint64_t)p[MAGIC_BYTES + 2 + i] << (8 * i);
    }
  }
  if (n_bytes < *offset || n_bytes - *offset < header_bytes) {
    cli_message("%s: the .npy header is cut off", path);
    return 1;
  }
  char *header = cli_allocate(header_bytes + 1);
  memcpy(header, file + *offset, header_bytes);
  header[header_bytes] = '\0';
  *offset += header_bytes;
  const char *type = find_key(header, "'descr'");
  const char *order = find_key(header, "'fortran_order'");
  const char *shape = find_key(header, "'shape'");
  uint64_t dims[2] = {0, 0};
  const int n_dims = shape ? read_shape(shape, dims) : -1;
  int failed = 1;
  if (!type || strncmp(type, "'<f4'", 5) != 0) {
    cli_message("%s: the array must be of type float32 ('<f4')", path);
  } else if (n_dims < 0 || !order || (n_dims == 2 && strncmp(order, "False", 5) != 0)) {
    cli_message("%s: the array must have one or two dimensions, in C order", path);
  } else if (dims[n_dims - 1] != width) {
    cli_message("%s: a row has %" PRIu64 " values, the site has %" PRIu64, path, dims[n_dims - 1],
                width);
  } else {
    *n_rows = n_dims == 2 ? dims[0] : 1;
    const uint64_t row_bytes = width * sizeof(float);
    failed = (n_bytes - *offset) / row_bytes < *n_rows;
    if (failed) cli_message("%s: the data are cut off", path);
  }
  free(header);
  return failed;
}

float *float_vector_read(const char *path, uint64_t width, int64_t row) {
  uint64_t n_bytes = 0, offset = 0, n_rows = 0;
  const uint64_t row_bytes = width * sizeof(float);
  char *file = cli_read_file(path, &n_bytes);
  if (!file) return NULL;
  int failed = 0;
  if (n_bytes >= MAGIC_BYTES && memcmp(file, kMagic, MAGIC_BYTES) == 0) {
    failed = parse_npy(path, file, n_bytes, width, &offset, &n_rows);
  } else {
    n_rows = n_bytes / row_bytes;
    failed = n_bytes == 0 || n_bytes % row_bytes != 0;
    if (failed) {
      cli_message("%s: %" PRIu64 " bytes; a raw file holds rows of %" PRIu64 " float32 values",
                  path, n_bytes, width);
    }
  }
  if (!failed && row < 0 && n_rows > 1) {
    cli_message("%s holds %" PRIu64 " rows; choose one with --row", path, n_rows);
    failed = 1;
  }
  if (row < 0) row = 0;
  if (!failed && (uint64_t)row >= n_rows) {
    cli_message("%s has no row %" PRId64 "; it holds %" PRIu64, path, row, n_rows);
    failed = 1;
  }
  float *values = failed ? NULL : cli_allocate(row_bytes);
  if (values) memcpy(values, file + offset + (uint64_t)row * row_bytes, row_bytes);
  free(file);
  for (uint64_t i = 0; values && i < width; ++i) {
    if (isfinite(values[i])) continue;
    cli_message("%s: value %" PRIu64 " is not finite", path, i);
    free(values);
    values = NULL;
  }
  return values;
}

int float_vector_write(const char *path, const float *values, uint64_t width) {
  const size_t length = strlen(path);
  FILE *file = fopen(path, "wb");
  int failed = !file;
  if (file && length >= 4 && strcmp(path + length - 4, ".npy") == 0) {
    /* Version 1: magic, version, 2 bytes of length, a dictionary padded so that data begin at byte 128. */
    char header[118 + 1];
    const int used =
        snprintf(header, sizeof(header),
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ",), }", width);
    memset(header + used, ' ', sizeof(header) - (size_t)used);
    header[117] = '\n';
    failed |= fwrite(kMagic, 1, MAGIC_BYTES, file) != MAGIC_BYTES;
    failed |= fwrite("\x01\x00\x76\x00", 1, 4, file) != 4;
    failed |= fwrite(header, 1, 118, file) != 118;
  }
  if (file) {
    failed |= fwrite(values, sizeof(float), width, file) != width;
    failed |= fclose(file) != 0;
  }
  if (!failed) return CLI_OK;
  cli_message("cannot write %s: %s", path, strerror(errno));
  return CLI_FAILED;
}

/* A two-layer llama with random F32 weights and a 300-token SentencePiece vocabulary, as GGUF bytes in memory. */
#ifndef ENGINE_TESTS_ABI_ABI_TOY_H_
#define ENGINE_TESTS_ABI_ABI_TOY_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  TOY_VOCAB = 300, /* <unk> <s> </s>, 256 bytes, 2 chat marks, 39 pieces */
  TOY_EMBD = 64,
  TOY_HEADS = 4,
  TOY_KV_HEADS = 2,
  TOY_HEAD_DIM = 16,
  TOY_FF = 96,
  TOY_LAYERS = 2,
  TOY_CTX = 128,
  TOY_IM_START = 259,
  TOY_IM_END = 260,
};

enum { TOY_U32 = 4, TOY_I32 = 5, TOY_F32 = 6, TOY_BOOL = 7, TOY_STRING = 8, TOY_ARRAY = 9 };

static const char kToyTemplate[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/* GGUF files are little-endian; so is every machine that these tests run on. */
typedef struct toy_file {
  uint8_t *bytes;
  uint64_t n_bytes;
  uint64_t capacity;
} toy_file;

static void toy_put(toy_file *f, const void *bytes, uint64_t n) {
  if (f->n_bytes + n > f->capacity) {
    f->capacity = 2 * (f->n_bytes + n);
    f->bytes = realloc(f->bytes, f->capacity);
    if (!f->bytes) abort();
  }
  memcpy(f->bytes + f->n_bytes, bytes, n);
  f->n_bytes += n;
}
static void toy_u32(toy_file *f, uint32_t v) { toy_put(f, &v, 4); }
static void toy_u64(toy_file *f, uint64_t v) { toy_put(f, &v, 8); }
static void toy_text(toy_file *f, const char *text) {
  toy_u64(f, strlen(text));
  toy_put(f, text, strlen(text));
}
static void toy_key(toy_file *f, const char *key, uint32_t type) {
  toy_text(f, key);
  toy_u32(f, type);
}
static void toy_key_u32(toy_file *f, const char *key, uint32_t v) {
  toy_key(f, key, TOY_U32);
  toy_u32(f, v);
}
static void toy_key_f32(toy_file *f, const char *key, float v) {
  toy_key(f, key, TOY_F32);
  toy_put(f, &v, 4);
}
static void toy_key_text(toy_file *f, const char *key, const char *v) {
  toy_key(f, key, TOY_STRING);
  toy_text(f, v);
}
static void toy_array(toy_file *f, const char *key, uint32_t element_type, uint64_t count) {
  toy_key(f, key, TOY_ARRAY);
  toy_u32(f, element_type);
  toy_u64(f, count);
}

/* The text of a token; the pieces are the space mark, letters and a few merges of them. */
static void toy_token(int id, char text[32]) {
  static const char *const kMerges[] = {"\u2581t", "he", "\u2581the", "in",      "er", "an",
                                        "re",      "on", "\u2581a",   "\u2581s", "at", "."};
  if (id < 3) {
    strcpy(text, id == 0 ? "<unk>" : id == 1 ? "<s>" : "</s>");
  } else if (id < 259) {
    sprintf(text, "<0x%02X>", id - 3);
  } else if (id < 261) {
    strcpy(text, id == TOY_IM_START ? "<|im_start|>" : "<|im_end|>");
  } else if (id == 261) {
    strcpy(text, "\u2581");
  } else if (id < 262 + 26) {
    sprintf(text, "%c", 'a' + id - 262);
  } else {
    strcpy(text, kMerges[id - 288]);
  }
}

static void toy_vocabulary(toy_file *f) {
  char text[32];
  toy_key_text(f, "tokenizer.ggml.model", "llama");
  toy_key_text(f, "tokenizer.ggml.pre", "default");
  toy_array(f, "tokenizer.ggml.tokens", TOY_STRING, TOY_VOCAB);
  for (int id = 0; id < TOY_VOCAB; ++id) {
    toy_token(id, text);
    toy_text(f, text);
  }
  toy_array(f, "tokenizer.ggml.scores", TOY_F32, TOY_VOCAB);
  for (int id = 0; id < TOY_VOCAB; ++id) {
    const float score = id < 261 ? 0.0f : (float)(261 - id);
    toy_put(f, &score, 4);
  }
  toy_array(f, "tokenizer.ggml.token_type", TOY_I32, TOY_VOCAB);
  for (int id = 0; id < TOY_VOCAB; ++id) {
    /* 2 unknown, 3 control, 6 byte, 1 normal */
    toy_u32(f, id == 0 ? 2u : id < 3 ? 3u : id < 259 ? 6u : id < 261 ? 3u : 1u);
  }
  toy_key_u32(f, "tokenizer.ggml.bos_token_id", 1);
  toy_key_u32(f, "tokenizer.ggml.eos_token_id", 2);
  toy_key_u32(f, "tokenizer.ggml.unknown_token_id", 0);
  toy_key_u32(f, "tokenizer.ggml.eot_token_id", TOY_IM_END);
  toy_key_text(f, "tokenizer.chat_template", kToyTemplate);
}

typedef struct toy_tensor {
  char name[64];
  uint32_t rows; /* 0 = a vector */
  uint32_t columns;
} toy_tensor;

/* The tensors of the model in file order; returns how many. */
static int toy_tensors(toy_tensor out[24]) {
  static const struct {
    const char *name;
    uint32_t rows, columns;
  } kBlock[] = {
      {"attn_norm", 0, TOY_EMBD},
      {"attn_q", TOY_HEADS * TOY_HEAD_DIM, TOY_EMBD},
      {"attn_k", TOY_KV_HEADS * TOY_HEAD_DIM, TOY_EMBD},
      {"attn_v", TOY_KV_HEADS * TOY_HEAD_DIM, TOY_EMBD},
      {"attn_output", TOY_EMBD, TOY_HEADS * TOY_HEAD_DIM},
      {"ffn_norm", 0, TOY_EMBD},
      {"ffn_gate", TOY_FF, TOY_EMBD},
      {"ffn_up", TOY_FF, TOY_EMBD},
      {"ffn_down", TOY_EMBD, TOY_FF},
  };
  int n = 0;
  out[n++] = (toy_tensor){"token_embd.weight", TOY_VOCAB, TOY_EMBD};
  for (int layer = 0; layer < TOY_LAYERS; ++layer) {
    for (unsigned i = 0; i < sizeof(kBlock) / sizeof(kBlock[0]); ++i) {
      sprintf(out[n].name, "blk.%d.%s.weight", layer, kBlock[i].name);
      out[n].rows = kBlock[i].rows;
      out[n++].columns = kBlock[i].columns;
    }
  }
  out[n++] = (toy_tensor){"output_norm.weight", 0, TOY_EMBD};
  out[n++] = (toy_tensor){"output.weight", TOY_VOCAB, TOY_EMBD};
  return n;
}

static uint64_t toy_elements(const toy_tensor *t) {
  return (uint64_t)(t->rows ? t->rows : 1) * t->columns;
}

/* with_weights 0 gives a vocabulary-only file, with_vocabulary 0 a file without tokenizer. */
static toy_file toy_build(int with_weights, int with_vocabulary) {
  static const uint8_t kMagic[4] = {'G', 'G', 'U', 'F'};
  toy_file f = {NULL, 0, 0};
  toy_tensor tensors[24];
  const int n_tensors = with_weights ? toy_tensors(tensors) : 0;
  toy_put(&f, kMagic, 4);
  toy_u32(&f, 3);
  toy_u64(&f, (uint64_t)n_tensors);
  toy_u64(&f, with_vocabulary ? 11 + 10 : 11); /* the keys below */
  toy_key_text(&f, "general.architecture", "llama");
  toy_key_text(&f, "general.name", "abi toy");
  toy_key_u32(&f, "llama.context_length", TOY_CTX);
  toy_key_u32(&f, "llama.embedding_length", TOY_EMBD);
  toy_key_u32(&f, "llama.block_count", TOY_LAYERS);
  toy_key_u32(&f, "llama.feed_forward_length", TOY_FF);
  toy_key_u32(&f, "llama.attention.head_count", TOY_HEADS);
  toy_key_u32(&f, "llama.attention.head_count_kv", TOY_KV_HEADS);
  toy_key_f32(&f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
  toy_key_f32(&f, "llama.rope.freq_base", 10000.0f);
  toy_key_u32(&f, "llama.rope.dimension_count", TOY_HEAD_DIM);
  if (with_vocabulary) toy_vocabulary(&f);
  uint64_t offset = 0;
  for (int i = 0; i < n_tensors; ++i) {
    const toy_tensor *t = &tensors[i];
    toy_text(&f, t->name);
    toy_u32(&f, t->rows ? 2 : 1);
    toy_u64(&f, t->columns);
    if (t->rows) toy_u64(&f, t->rows);
    toy_u32(&f, 0); /* F32 */
    toy_u64(&f, offset);
    offset += (toy_elements(t) * 4 + 31) / 32 * 32;
  }
  uint32_t state = 12345;
  for (int i = 0; i < n_tensors; ++i) {
    while (f.n_bytes % 32) toy_put(&f, "", 1);
    for (uint64_t k = 0, n = toy_elements(&tensors[i]); k < n; ++k) {
      state = state * 1664525u + 1013904223u;
      const float noise = (float)(state >> 8) / 8388608.0f - 1.0f; /* [-1, 1) */
      const float value = tensors[i].rows ? noise * 0.25f : 1.0f + 0.5f * noise;
      toy_put(&f, &value, 4);
    }
  }
  return f;
}

#endif /* ENGINE_TESTS_ABI_ABI_TOY_H_ */

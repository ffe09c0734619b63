// The list of known architectures.
#include "lib/model/arch.h"

namespace engine {

std::span<const ArchSpec* const> architectures() {
  static constexpr const ArchSpec* kAll[] = {
      &kArchLlama,  &kArchSmolLm3, &kArchQwen2, &kArchQwen3,   &kArchGemma2,
      &kArchGemma3, &kArchGemma4,  &kArchPhi3,  &kArchGranite, &kArchQwen3Moe,
      &kArchOlmoe,  &kArchGptOss,  &kArchLfm2};
  return kAll;
}

const ArchSpec* find_architecture(std::string_view name) {
  for (const ArchSpec* arch : architectures()) {
    if (arch->name == name) return arch;
  }
  return nullptr;
}

}  // namespace engine

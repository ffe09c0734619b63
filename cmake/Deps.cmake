# Dependencies: header-only ones from the system, the rest as pinned sources built position-independent.
#
# Order for each source: FETCHCONTENT_SOURCE_DIR_<NAME> if given, else the tree that cmake/install_deps.sh
# unpacked, else a download (URL and SHA-256 pinned; the trees of install_deps.sh have the same hashes).
include(FetchContent)

if(DEFINED ENV{ENGINE_DEPS_DIR})
  set(engine_deps_dir "$ENV{ENGINE_DEPS_DIR}")
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(engine_deps_dir "$ENV{XDG_CACHE_HOME}/engine/deps")
else()
  set(engine_deps_dir "$ENV{HOME}/.cache/engine/deps")
endif()
set(ENGINE_DEPS_DIR "${engine_deps_dir}" CACHE PATH "source trees made by cmake/install_deps.sh")

function(engine_declare name folder url sha)
  string(TOUPPER ${name} upper)
  if(NOT FETCHCONTENT_SOURCE_DIR_${upper} AND EXISTS "${ENGINE_DEPS_DIR}/${folder}/.stamp")
    set(FETCHCONTENT_SOURCE_DIR_${upper} "${ENGINE_DEPS_DIR}/${folder}" CACHE PATH "" FORCE)
  endif()
  FetchContent_Declare(${name} URL "${url}" URL_HASH SHA256=${sha})
endfunction()

set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
set(BUILD_SHARED_LIBS OFF)
set(BUILD_TESTING OFF)

# Adds a source tree without its install rules, its tests and its default targets.
macro(engine_add_source name)
  FetchContent_GetProperties(${name})
  if(NOT ${name}_POPULATED)
    FetchContent_Populate(${name})
  endif()
  add_subdirectory(${${name}_SOURCE_DIR} ${${name}_BINARY_DIR} EXCLUDE_FROM_ALL SYSTEM)
endmacro()

set(ABSL_PROPAGATE_CXX_STD ON)
set(ABSL_ENABLE_INSTALL OFF)
engine_declare(absl abseil https://github.com/abseil/abseil-cpp/archive/refs/tags/20240722.0.tar.gz
  df6d1f5ef540725f3851201176a60486aab332410788465c9877910bb471c34a)
engine_add_source(absl)

set(PCRE2_BUILD_PCRE2_8 ON)
set(PCRE2_BUILD_PCRE2GREP OFF)
set(PCRE2_BUILD_TESTS OFF)
set(PCRE2_SUPPORT_UNICODE ON)
set(PCRE2_SUPPORT_JIT OFF)
set(PCRE2_STATIC_PIC ON)
engine_declare(pcre2 pcre2
  https://github.com/PCRE2Project/pcre2/releases/download/pcre2-10.42/pcre2-10.42.tar.gz
  c33b418e3b936ee3153de2c61cc638e7e4fe3156022a5c77d0711bcbb9d64f1f)
engine_add_source(pcre2)
add_library(engine_pcre2 INTERFACE)
target_link_libraries(engine_pcre2 INTERFACE pcre2-8-static)
target_include_directories(engine_pcre2 SYSTEM INTERFACE ${pcre2_BINARY_DIR})

# Highway: its headers and target detection only; its own CMake would build tests and more.
engine_declare(highway highway https://github.com/google/highway/archive/refs/tags/1.2.0.tar.gz
  7e0be78b8318e8bdbf6fa545d2ecb4c90f947df03f7aadc42c1967f019e63343)
FetchContent_GetProperties(highway)
if(NOT highway_POPULATED)
  FetchContent_Populate(highway)
endif()
add_library(engine_hwy STATIC EXCLUDE_FROM_ALL ${highway_SOURCE_DIR}/hwy/targets.cc)
if(EXISTS ${highway_SOURCE_DIR}/hwy/abort.cc)
  target_sources(engine_hwy PRIVATE ${highway_SOURCE_DIR}/hwy/abort.cc)
endif()
target_include_directories(engine_hwy SYSTEM PUBLIC ${highway_SOURCE_DIR})
target_compile_definitions(engine_hwy PUBLIC HWY_STATIC_DEFINE)

find_path(ENGINE_XXHASH_INCLUDE xxhash.h REQUIRED)
add_library(engine_xxhash INTERFACE)
target_include_directories(engine_xxhash SYSTEM INTERFACE ${ENGINE_XXHASH_INCLUDE})
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Threads REQUIRED)

if(ENGINE_BUILD_TESTS)
  engine_declare(Catch2 catch2 https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
    c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c)
  engine_add_source(Catch2)
  list(APPEND CMAKE_MODULE_PATH ${catch2_SOURCE_DIR}/extras)
endif()

# Libraries from the distribution's packages. If one is missing, configuring ends with the packages
# to install.

function(lab_require condition package)
  if(${condition})
    return()
  endif()
  file(STRINGS ${CMAKE_SOURCE_DIR}/packages.txt lines REGEX "^[a-z+0-9-]+ +build ")
  list(TRANSFORM lines REPLACE " .*" "")
  list(JOIN lines " " packages)
  message(FATAL_ERROR "${package} is missing. `./workbook setup` installs all that is needed, or:\n"
                      "  sudo apt-get install ${packages}")
endfunction()

find_package(OpenMP QUIET COMPONENTS CXX)
lab_require(OpenMP_CXX_FOUND "OpenMP (of g++)")
find_package(Threads REQUIRED)
find_package(fmt QUIET)
lab_require(fmt_FOUND libfmt-dev)
find_package(nlohmann_json QUIET)
lab_require(nlohmann_json_FOUND nlohmann-json3-dev)
find_package(CLI11 QUIET)
lab_require(CLI11_FOUND libcli11-dev)
find_package(GTest QUIET)
lab_require(GTest_FOUND libgtest-dev)
find_package(benchmark QUIET)
lab_require(benchmark_FOUND libbenchmark-dev)

find_package(PkgConfig QUIET)
lab_require(PKG_CONFIG_FOUND pkgconf)
pkg_check_modules(xxhash QUIET IMPORTED_TARGET libxxhash)
lab_require(xxhash_FOUND libxxhash-dev)

# Without pkg-config: Ubuntu's file for sentencepiece requires protobuf, which its users do not
# need.
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
lab_require(SENTENCEPIECE_LIBRARY libsentencepiece-dev)
lab_require(SENTENCEPIECE_INCLUDE_DIR libsentencepiece-dev)
add_library(sentencepiece::sentencepiece INTERFACE IMPORTED)
target_include_directories(sentencepiece::sentencepiece INTERFACE ${SENTENCEPIECE_INCLUDE_DIR})
target_link_libraries(sentencepiece::sentencepiece INTERFACE ${SENTENCEPIECE_LIBRARY})

# Debian's file for oneDNN requires OpenCL's headers, which its users on the CPU do not need.
find_library(DNNL_LIBRARY dnnl)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
lab_require(DNNL_LIBRARY libdnnl-dev)
lab_require(DNNL_INCLUDE_DIR libdnnl-dev)
add_library(DNNL::dnnl INTERFACE IMPORTED)
target_include_directories(DNNL::dnnl INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(DNNL::dnnl INTERFACE ${DNNL_LIBRARY})

# Found by library and header, because its CMake files differ between versions.
find_library(GLOO_LIBRARY gloo)
find_path(GLOO_INCLUDE_DIR gloo/allreduce.h)
lab_require(GLOO_LIBRARY libgloo-dev)
lab_require(GLOO_INCLUDE_DIR libgloo-dev)
add_library(Gloo::gloo INTERFACE IMPORTED)
target_include_directories(Gloo::gloo INTERFACE ${GLOO_INCLUDE_DIR})
target_link_libraries(Gloo::gloo INTERFACE ${GLOO_LIBRARY})

# Headers only; its CMake files differ between versions, too.
find_path(UTF8CPP_INCLUDE_DIR utf8.h PATH_SUFFIXES utf8cpp)
lab_require(UTF8CPP_INCLUDE_DIR libutfcpp-dev)
add_library(utf8cpp::headers INTERFACE IMPORTED)
target_include_directories(utf8cpp::headers INTERFACE ${UTF8CPP_INCLUDE_DIR})

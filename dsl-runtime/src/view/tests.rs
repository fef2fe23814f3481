//! Views: their offsets in memory, and the views made of them.

use expect_test::{Expect, expect};

use super::*;
use crate::Device;

/// What a view of 12 elements comes to, to read and to write.
fn check<const R: usize>(shape: [usize; R], strides: [usize; R], expected: Expect) {
    let mut memory: Vec<i32> = (0..12).collect();
    let reading = View::strided(&memory, shape, strides);
    let reading =
        reading.map_or_else(|error| error.to_string(), |view| format!("{} elements", view.memory.len()));
    let writing = ViewMut::strided(&mut memory, shape, strides);
    let writing =
        writing.map_or_else(|error| error.to_string(), |view| format!("{} elements", view.memory.len()));
    expected.assert_eq(&format!("{reading}\n{writing}"));
}

#[test]
fn an_axis_of_one_is_repeated() {
    let memory: Vec<i32> = (0..12).collect();
    let view = View::new(&memory, [3, 1, 4]).unwrap();
    let wide = view.broadcast([3, 5, 4]).unwrap();
    assert_eq!((wide.shape(), wide.strides()), ([3, 5, 4], [4, 0, 1]));
    assert_eq!(view.broadcast([3, 0, 4]).unwrap().shape(), [3, 0, 4]);
    let error = view.broadcast([6, 1, 4]).unwrap_err().to_string();
    let of = "a view of shape [3, 1, 4] with strides [4, 4, 1]";
    assert_eq!(error, format!("{of} cannot be repeated to the shape [6, 1, 4]"));
}

#[test]
fn axes_of_one_element_have_strides_that_suit_launches() {
    assert_eq!(launch_strides([3, 4], [4, 1]), [4, 1]);
    assert_eq!(launch_strides([1, 5, 7], [5, 1, 5]), [16, 1, 5]);
    assert_eq!(launch_strides([1, 5, 7], [35, 7, 1]), [16, 7, 1]);
    assert_eq!(launch_strides([9, 1], [3, 3]), [3, 1]);
    assert_eq!(launch_strides([9, 1], [1, 1]), [1, 16]);
    assert_eq!(launch_strides([1, 1], [8, 8]), [16, 1]);
    assert_eq!(launch_strides([0, 6], [1, 5]), [16, 1]);
}

#[test]
fn a_reshaped_view_has_the_same_elements() {
    let memory: Vec<i32> = (0..24).collect();
    let view = View::new(&memory, [2, 3, 4]).unwrap();
    let strides = |view: Result<View<i32, 4>>| view.map(|view| view.strides()).map_err(|e| e.to_string());
    assert_eq!(strides(view.reshape([2, 1, 6, 2])), Ok([12, 12, 2, 1]));
    assert_eq!(strides(view.reshape([1, 24, 1, 1])), Ok([24, 1, 1, 1]));
    // Split axes stay apart.
    let permuted = view.permute([1, 0, 2]);
    assert_eq!(strides(permuted.reshape([3, 2, 2, 2])), Ok([4, 12, 2, 1]));
    let of = "a view of shape [3, 2, 4] with strides [4, 12, 1]";
    assert_eq!(
        strides(permuted.reshape([1, 6, 2, 2])),
        Err(format!("{of} has no strides for the shape [1, 6, 2, 2]"))
    );
    assert_eq!(
        strides(permuted.reshape([3, 2, 2, 1])),
        Err(format!("{of} has not as many elements as the shape [3, 2, 2, 1]"))
    );
    assert_eq!(strides(view.slice(0, ..0).reshape([1, 0, 5, 2])), Ok([0, 10, 2, 1]));
    // One index along an axis: its stride does not count.
    let rows = View::strided(&memory, [6, 1, 2], [4, 1, 1]).unwrap();
    assert_eq!(strides(rows.reshape([2, 1, 3, 2])), Ok([12, 12, 4, 1]));
}

#[test]
fn a_view_is_within_its_memory() {
    check(
        [3, 4],
        [4, 1],
        expect![[r#"
        12 elements
        12 elements"#]],
    );
    check(
        [3, 4],
        [5, 1],
        expect![[r#"
        a view of shape [3, 4] with strides [5, 1] reaches element 13 of memory that has 12 elements
        a view of shape [3, 4] with strides [5, 1] reaches element 13 of memory that has 12 elements"#]],
    );
    check(
        [4, 4],
        [4, 1],
        expect![[r#"
        a view of shape [4, 4] with strides [4, 1] reaches element 15 of memory that has 12 elements
        a view of shape [4, 4] with strides [4, 1] reaches element 15 of memory that has 12 elements"#]],
    );
    check(
        [13],
        [1],
        expect![[r#"
        a view of shape [13] with strides [1] reaches element 12 of memory that has 12 elements
        a view of shape [13] with strides [1] reaches element 12 of memory that has 12 elements"#]],
    );
    check(
        [5, 0, 7],
        [1000, 1, 1],
        expect![[r#"
        0 elements
        0 elements"#]],
    );
    check(
        [usize::MAX, 2],
        [usize::MAX, 1],
        expect![[r#"
        a view of shape [18446744073709551615, 2] with strides [18446744073709551615, 1] has 18446744073709551615 where the limit is 1099511627775
        a view of shape [18446744073709551615, 2] with strides [18446744073709551615, 1] has 18446744073709551615 where the limit is 1099511627775"#]],
    );
    check(
        [1 << 39, 1 << 39, 1 << 39],
        [1 << 39, 1 << 39, 1 << 39],
        expect![[r#"
        a view of shape [549755813888, 549755813888, 549755813888] with strides [549755813888, 549755813888, 549755813888] reaches element 906694364709322613587968 of memory that has 12 elements
        a view of shape [549755813888, 549755813888, 549755813888] with strides [549755813888, 549755813888, 549755813888] reaches element 906694364709322613587968 of memory that has 12 elements"#]],
    );
    check(
        [1, 12],
        [1 << 39, 1],
        expect![[r#"
        12 elements
        12 elements"#]],
    );
}

#[test]
fn elements_to_write_are_distinct() {
    check(
        [3, 0, 16],
        [0, 16, 1],
        expect![[r#"
        0 elements
        0 elements"#]],
    );
    check(
        [12, 12],
        [0, 1],
        expect![[r#"
        12 elements
        a view of shape [12, 12] with strides [0, 1] has elements that might be the same along axis 0: it cannot be written"#]],
    );
    check(
        [2, 3],
        [2, 1],
        expect![[r#"
        5 elements
        a view of shape [2, 3] with strides [2, 1] has elements that might be the same along axis 0: it cannot be written"#]],
    );
    check(
        [2, 3],
        [3, 1],
        expect![[r#"
        6 elements
        6 elements"#]],
    );
    check(
        [3, 2, 2],
        [1, 6, 3],
        expect![[r#"
        12 elements
        12 elements"#]],
    );
    check(
        [3, 1, 2],
        [2, 0, 1],
        expect![[r#"
        6 elements
        6 elements"#]],
    );
    check(
        [2, 2],
        [1, 1],
        expect![[r#"
        3 elements
        a view of shape [2, 2] with strides [1, 1] has elements that might be the same along axis 1: it cannot be written"#]],
    );
}

#[test]
fn views_are_permuted_and_cut() {
    let memory: Vec<i32> = (0..24).collect();
    let view = View::new(&memory, [2, 3, 4]).unwrap();
    assert_eq!(format!("{view:?}"), "i32 of [2, 3, 4] by [12, 4, 1]");
    assert_eq!(format!("{:?}", view.permute([2, 0, 1])), "i32 of [4, 2, 3] by [1, 12, 4]");
    let part = view.slice(1, 1..).slice(2, 1..3);
    assert_eq!(format!("{part:?}"), "i32 of [2, 2, 2] by [12, 4, 1]");
    assert_eq!(part.memory.as_host().unwrap(), &memory[5..23]);
    assert_eq!(view.slice(0, 2..).memory.len(), 0);
    assert_eq!(view.slice(0, 1..1).shape(), [0, 3, 4]);
}

#[test]
fn a_view_to_write_is_part_of_its_buffer() {
    let mut buffer = Device::cpu().zeros::<u8>(20).unwrap();
    let mut view = buffer.view_strided_mut([3, 4], [5, 1]).unwrap();
    assert_eq!(format!("{:?}", view.reborrow().permute([1, 0])), "u8 of [4, 3] by [1, 5]");
    assert_eq!(format!("{:?}", view.reborrow().reshape([3, 2, 2]).unwrap()), "u8 of [3, 2, 2] by [5, 2, 1]");
    assert!(view.reborrow().reshape([12]).is_err() && view.reborrow().reshape([3, 5]).is_err());
    let part = view.slice_mut(0, 1..2);
    assert_eq!((part.shape(), part.memory.len()), ([1, 4], 4));
    assert_eq!(View::from(&view).shape(), [3, 4]);
    let mut tail = buffer.slice_mut(8..);
    assert_eq!(tail.view_mut([3, 4]).unwrap().shape(), [3, 4]);
    assert!(tail.view_mut([13]).is_err() && tail.slice(..).view([13]).is_err());
}

#[test]
#[should_panic(expected = "the order [0, 0] does not name each of 2 axes once")]
fn an_order_names_every_axis() {
    let _ = View::new(&[0i32; 4], [2, 2]).unwrap().permute([0, 0]);
}

#[test]
#[should_panic(expected = "there is no axis 2: a view of 2 axes has axes 0 to 1")]
fn a_part_is_along_an_axis() {
    let _ = View::new(&[0i32; 4], [2, 2]).unwrap().slice(2, ..);
}

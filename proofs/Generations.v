(** Generations of counters: how a refund knows whether the counters have counted its charge.

    A window may change and change back within one period. Then the counters before and after have the same
    window and the same period, and only the generation in the mark of a charge tells them apart. Here are
    the facts about marks that ChangesFixed.v and ChangesCounter.v share. *)

From Proofs Require Import Changes Carried FixedWindow.

(** The generation of the counters after a charge: the same under the same window, and a higher one under
    another. *)
Definition begins (is_same : bool) (g now : Z) : Z := if is_same then g else Z.max now (g + 1).

(** The generation of a period that starts at a time: 0 if the window has not changed since. *)
Definition generation (g start : Z) : Z := if start <=? g then g else 0.

Definition start_of (t w : Z) : Z := next_edge t w - w.

(** The mark of a charge. *)
Definition mark_at (g t w : Z) : mark := (start_of t w, generation g (start_of t w), 0).

(** The counters of window [w] whose last charge was at [last] have counted the charge of a receipt: in the
    period of the last charge ([ago] is 0), or in the one before ([ago] is 1). *)
Definition is_counted (w last g ago : Z) (r : receipt) : bool :=
  let '(start, g', _) := left_mark r in
  let w' := window (charged_under r) in
  (w =? w') && (next_edge last w' =? start + w' + ago * w') && (g' =? generation g start).

(** The net units of the entries that a test of receipts accepts. *)
Fixpoint mine (accepts : receipt -> bool) (l : list entry) : Z :=
  match l with
  | [] => 0
  | e :: older => (if accepts (from e) then net e else 0) + mine accepts older
  end.

Definition holds_net (l : list entry) : Prop := Forall (fun e => 0 <= net e) l.

Lemma sound_holds_net : forall now l, sound_ledger now l -> holds_net l.
Proof. intros now l. apply Forall_impl. intros e H. apply H. Qed.

Lemma mine_app : forall p l1 l2, mine p (l1 ++ l2) = mine p l1 + mine p l2.
Proof. induction l1; cbn; intros; [lia|]. rewrite IHl1. lia. Qed.

Lemma mine_less : forall p newer e older k,
  mine p (newer ++ less e k :: older) =
  mine p (newer ++ e :: older) - (if p (from e) then k else 0).
Proof. intros. rewrite !mine_app. cbn. destruct (p (from e)); lia. Qed.

Lemma mine_nonneg : forall p l, holds_net l -> 0 <= mine p l.
Proof. intros p l H. induction H; cbn; [lia|]. destruct (p _); lia. Qed.

Lemma mine_le : forall p p' l, holds_net l ->
  Forall (fun e => p (from e) = true -> p' (from e) = true) l -> mine p l <= mine p' l.
Proof.
  intros p p' l H. induction H as [|e l He _ IH]; cbn; intros F; [lia|].
  inversion F as [|? ? Fe Fl]; subst. specialize (IH Fl).
  destruct (p (from e)); [rewrite (Fe eq_refl)|destruct (p' (from e))]; lia.
Qed.

Lemma mine_none : forall p l, Forall (fun e => p (from e) = true -> False) l -> mine p l = 0.
Proof.
  intros p l H. induction H as [|e l He _ IH]; cbn; [reflexivity|].
  destruct (p (from e)); [destruct (He eq_refl)|lia].
Qed.

Lemma nets_mine : forall a p n l, holds_net l ->
  Forall (fun e => a (at_time e) = true -> p (from e) = true) (firstn n l) ->
  nets a (firstn n l) <= mine p l.
Proof.
  intros a p n l H. revert n. induction H as [|e l He Hl IH]; intros [|n] F; cbn in *; try lia.
  - pose proof (mine_nonneg p l Hl). destruct (p (from e)); lia.
  - inversion F as [|? ? Fe Fl]; subst. specialize (IH n Fl).
    destruct (a (at_time e)); [rewrite (Fe eq_refl)|destruct (p (from e))]; lia.
Qed.

Lemma nets_zero : forall a l, Forall (fun e => a (at_time e) = false) l -> nets a l = 0.
Proof. intros a l H. induction H as [|e l He _ IH]; cbn; [reflexivity|]. rewrite He. lia. Qed.

Lemma forall_firstn : forall (P : entry -> Prop) n l, Forall P l -> Forall P (firstn n l).
Proof.
  intros P n l H. revert n. induction H; intros [|n]; cbn; constructor; auto.
Qed.

(** A refund does not change statements about receipts and times alone. *)
Lemma forall_less : forall (P : entry -> Prop) newer e older k, (P (less e k) <-> P e) ->
  (Forall P (newer ++ less e k :: older) <-> Forall P (newer ++ e :: older)).
Proof.
  intros P newer e older k H. rewrite !Forall_app. split; intros [H1 H2]; split; auto;
    inversion H2; subst; constructor; tauto.
Qed.

Lemma forall_firstn_less : forall (P : entry -> Prop) n newer e older k, (P (less e k) <-> P e) ->
  (Forall P (firstn n (newer ++ less e k :: older)) <-> Forall P (firstn n (newer ++ e :: older))).
Proof.
  intros P n newer e older k H. revert n.
  induction newer as [|e' newer IH]; intros [|n]; cbn; [tauto| |tauto|].
  - rewrite !Forall_cons_iff. tauto.
  - rewrite !Forall_cons_iff, (IH n). tauto.
Qed.

Lemma firstn_less_nil : forall n newer e older k,
  firstn n (newer ++ less e k :: older) = [] -> firstn n (newer ++ e :: older) = [].
Proof. intros [|n] [|e' newer] e older k; cbn; congruence. Qed.

(** An invariant of all marks. Counters have the window [w], their last charge at [last], and the
    generation [g]. The newest charges of one window have the marks of this generation. *)
Record marks (w last g : Z) (l : list entry) : Prop := {
  generation_nonneg : 0 <= g;
  mark_is_past : Forall (fun e => fst (fst (left_mark (from e))) <= at_time e <= last) l;
  mark_is_older : Forall (fun e => snd (fst (left_mark (from e))) <= g) l;
  mark_of_run : forall n w', Forall (fun e => window (entry_quota e) = w') (firstn n l) ->
    Forall (fun e => left_mark (from e) = mark_at g (at_time e) w') (firstn n l) /\
    (firstn n l <> [] -> w = w')
}.

Lemma no_marks : forall w last, marks w last 0 [].
Proof.
  intros. split; try constructor; try lia; destruct n; cbn; try constructor; congruence.
Qed.

Lemma start_is_past : forall t w, 0 < w -> start_of t w <= t.
Proof. intros t w H. unfold start_of, next_edge. pose proof (floor_ge t w (t / w) H). lia. Qed.

Lemma begins_is_later : forall b g t, g <= begins b g t.
Proof. intros [] g t; cbn; lia. Qed.

Lemma marks_charged : forall w last g l q t c, valid_quota q -> 0 <= t -> last <= t -> marks w last g l ->
  let g' := begins (w =? window q) g t in
  marks (window q) t g' (Entry (Receipt q (mark_at g' t (window q))) t c true :: l).
Proof.
  intros w last g l q t c (_ & Hw & _) H0 Ht [G P O R]. cbn.
  pose proof (begins_is_later (w =? window q) g t) as Lg.
  pose proof (start_is_past t (window q) Hw) as Ls. split.
  - lia.
  - constructor; [cbn; lia|]. revert P. apply Forall_impl. lia.
  - constructor; [cbn; unfold generation; destruct (_ <=? _); lia|]. revert O. apply Forall_impl. lia.
  - intros [|n] w' F; cbn in *; [split; [constructor|congruence]|].
    inversion F as [|? ? Fe Fl]. subst x l0. change (window q = w') in Fe. subst w'.
    destruct (R n (window q) Fl) as [R1 R2]. split; [|reflexivity]. constructor; [reflexivity|].
    destruct (firstn n l) as [|e rest] eqn:E; [constructor|].
    rewrite (R2 ltac:(discriminate)), Z.eqb_refl. exact R1.
Qed.

Lemma marks_refunded : forall w last g newer e older k,
  marks w last g (newer ++ e :: older) -> marks w last g (newer ++ less e k :: older).
Proof.
  intros w last g newer e older k [G P O R]. split; [assumption| | |].
  - apply forall_less; [reflexivity|assumption].
  - apply forall_less; [reflexivity|assumption].
  - intros n w' F. apply forall_firstn_less in F; [|reflexivity]. destruct (R n w' F) as [R1 R2].
    split; [apply forall_firstn_less; [reflexivity|assumption]|].
    intros N. apply R2. intros E. apply N. revert E.
    destruct n, newer; cbn; congruence.
Qed.

Lemma next_edge_of : forall t w, next_edge t w = t / w * w + w.
Proof. intros. unfold next_edge. lia. Qed.

(** A charge that the counters count after a charge at [t] was counted before it, a period later for each
    period that has begun. After a change of the window, none is counted. *)
Lemma counted_before : forall w last g l q t ago e, valid_quota q -> marks w last g l -> In e l ->
  last <= t -> 0 <= ago ->
  is_counted (window q) t (begins (w =? window q) g t) ago (from e) = true ->
  w = window q /\ t / window q - last / window q <= ago /\
  is_counted w last g (ago - (t / window q - last / window q)) (from e) = true.
Proof.
  intros w last g l q t ago e (_ & Hw & _) [G P O _] I Ht Ha C.
  rewrite Forall_forall in P, O. specialize (P e I). specialize (O e I).
  unfold is_counted in *. destruct (left_mark (from e)) as [[start g'] m2]. cbn in P, O.
  apply andb_prop in C as [C C3]. apply andb_prop in C as [C1 C2].
  apply Z.eqb_eq in C1. rewrite <- C1 in *. apply Z.eqb_eq in C2. apply Z.eqb_eq in C3.
  rewrite next_edge_of in *. set (W := window q) in *.
  pose proof (floor_ge t W (t / W) Hw) as Ft.
  destruct (Z.eqb_spec w W) as [->|N].
  - cbn [begins] in C3. pose proof (floor_lt last W (last / W + 1) Hw) as Fl.
    split; [reflexivity|]. split; [nia|].
    rewrite C3, Z.eqb_refl, andb_true_r. cbn [andb]. apply Z.eqb_eq. lia.
  - exfalso. cbn [begins] in C3. unfold generation in C3.
    assert (start <= t) by nia. destruct (Z.leb_spec start (Z.max t (g + 1))); lia.
Qed.

(** The newest charges of one window are counted in their period. *)
Lemma run_is_counted : forall w last g l n w' p, 0 < w' -> marks w last g l ->
  Forall (fun e => window (entry_quota e) = w') (firstn n l) -> firstn n l <> [] ->
  w = w' /\
  Forall (fun e => of_period w' p (at_time e) = true ->
    is_counted w last g (last / w' - p) (from e) = true) (firstn n l).
Proof.
  intros w last g l n w' p Hw [_ _ _ R] F N. destruct (R n w' F) as [R1 R2]. specialize (R2 N).
  split; [assumption|]. subst w'. clear N. rewrite Forall_forall in *. intros e I A.
  specialize (F e I). specialize (R1 e I). unfold is_counted. rewrite R1. unfold mark_at.
  unfold entry_quota in F. rewrite F, !Z.eqb_refl, andb_true_r. cbn [andb].
  unfold of_period in A. apply Z.eqb_eq in A. unfold start_of. rewrite !next_edge_of, A.
  apply Z.eqb_eq. lia.
Qed.

Lemma all_under_windows : forall q n l, all_under q (firstn n l) ->
  Forall (fun e => window (entry_quota e) = window q) (firstn n l).
Proof. intros q n l. apply Forall_impl. intros e ->. reflexivity. Qed.

Lemma none_after_the_last : forall w last g l n W p, 0 < W -> marks w last g l -> last / W < p ->
  nets (of_period W p) (firstn n l) = 0.
Proof.
  intros w last g l n W p HW [_ P _ _] Hp. apply nets_zero, forall_firstn. revert P. apply Forall_impl.
  intros e [_ H]. unfold of_period. pose proof (Z.div_le_mono (at_time e) last W HW H). lia.
Qed.

Lemma sound_firstn : forall now n l, sound_ledger now l -> sound_ledger now (firstn n l).
Proof. intros now n l. apply forall_firstn. Qed.
